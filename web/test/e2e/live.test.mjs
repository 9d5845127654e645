// A run that trains: figures come without a reload, by increments, and again after the connection was lost.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startBrowser, visit } from '../browser.mjs';
import { startMock } from '../mock-server.mjs';

let dash;
before(async () => (dash = await startBrowser()));
after(() => dash.stop());

async function openLive(page, url) {
  await visit(page, url);
  await page.waitForSelector('.connection-live');
}

const stepShown = (page) => page.locator('.legend-x').first().innerText().then((text) => Number(text.replace(/\D/g, '')));

async function laterStep(page, first) {
  for (let i = 0; i < 120; ++i) {
    const now = await stepShown(page);
    if (now > first) return now;
    await page.waitForTimeout(250);
  }
  throw new Error(`still at step ${first} after half a minute`);
}

test('a growing run grows on the page, by increments, without a reload', async (t) => {
  if (!dash.live) return t.skip('no run is training');
  const { page, close } = await dash.open(`#/run/${dash.live}/overview`);
  const increments = [];
  page.on('request', (request) => /metrics\?.*after=[1-9]/.test(request.url()) && increments.push(request.url()));
  await page.evaluate(() => (window.sameDocument = true));
  await page.locator('.plot canvas').first().waitFor();
  await page.waitForSelector('.connection-live');
  const first = await stepShown(page);
  await laterStep(page, first);
  assert.ok(increments.length > 0, 'only what is new was asked for');
  assert.ok(await page.evaluate(() => window.sameDocument), 'the page was reloaded');
  return close();
});

test('the heat map and the list of runs follow a growing run', async (t) => {
  if (!dash.live) return t.skip('no run is training');
  const { page, close } = await dash.open(`#/run/${dash.live}/numerics?statistic=amax&role=x`);
  await page.getByRole('application').waitFor();
  await page.waitForResponse((response) => response.url().includes('/numerics?'), { timeout: 30000 });
  await visit(page, `${dash.base}#/`);
  await page.waitForSelector('table.runs');
  const row = page.locator(`tr:has(a[href="#/run/${dash.live}/overview"]) .progress-cell`);
  const before = await row.innerText();
  await page.waitForFunction(([href, text]) => document.querySelector(`tr:has(a[href="${href}"]) .progress-cell`)?.innerText !== text,
    [`#/run/${dash.live}/overview`, before], { timeout: 30000 });
  return close();
});

test('a new run appears by itself', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const { page, close } = await dash.open('#/');
  await page.waitForSelector('.connection-live');
  dash.mock.addRun({ ...dash.mock.runs[1], id: 'newcomer', name: 'newcomer' });
  await page.waitForSelector('text=newcomer');
  return close();
});

test('a stream that opens before the first frame is shown as live', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const context = await dash.browser.newContext();
  const page = await context.newPage();
  await page.addInitScript(() => {
    window.EventSource = class extends EventTarget {
      constructor() {
        super();
        queueMicrotask(() => this.onopen()); // after the page's script, before anything else
      }
      close() {}
    };
  });
  await openLive(page, dash.base);
  await context.close();
});

test('a stream that is never answered is a lost connection, and tried again', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const context = await dash.browser.newContext();
  const page = await context.newPage();
  await page.addInitScript(() => {
    window.asked = 0;
    window.EventSource = class extends EventTarget {
      constructor() {
        super();
        ++window.asked;
      }
      close() {}
    };
  });
  await visit(page, dash.base);
  await page.waitForSelector('.connection-lost');
  await page.waitForFunction(() => window.asked > 1);
  await context.close();
});

test('a lost connection is shown, and what was missed is fetched when it is back', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  let mock = await startMock({ growEvery: 200 });
  t.after(() => mock.close()); // also where it fails: an open server keeps the tests from ending
  const context = await dash.browser.newContext();
  const page = await context.newPage();
  await openLive(page, `${mock.url}#/run/live/overview`);
  await page.locator('.plot canvas').first().waitFor();
  const { port } = mock;
  const before = await stepShown(page);
  await mock.close();
  await page.waitForSelector('.banner:has-text("Connection lost")');
  assert.match(await page.locator('.connection').innerText(), /connection lost/);
  mock = await startMock({ port, growEvery: 200 });
  mock.runs.find((run) => run.id === 'live').step = before + 500;
  await page.waitForSelector('.connection-live', { timeout: 20000 });
  await page.waitForSelector('.banner', { state: 'detached' });
  assert.ok((await laterStep(page, before + 400)) > before + 400);
  await context.close();
});

test('a run that is rewound is drawn anew', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const mock = await startMock({ growEvery: 1e6 });
  t.after(() => mock.close()); // also where it fails: an open server keeps the tests from ending
  const context = await dash.browser.newContext();
  const page = await context.newPage();
  await openLive(page, `${mock.url}#/run/live/overview`);
  await page.locator('.plot canvas').first().waitFor();
  const before = await stepShown(page);
  mock.runs.find((run) => run.id === 'live').step = before - 300;
  mock.tell('change', { run: 'live', kinds: ['metrics'], step: before - 300 });
  for (let i = 0; (await stepShown(page)) !== before - 300; ++i) {
    assert.ok(i < 100, 'still shows the steps that were taken back');
    await page.waitForTimeout(100);
  }
  await context.close();
});
