// Names, texts and numbers from outside are never code, and their size never stops the page.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { colorsOf, startBrowser, visit } from '../browser.mjs';
import { startMock } from '../mock-server.mjs';

let dash;
before(async () => (dash = await startBrowser()));
after(() => dash.stop());

test('hostile names are text in every view', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const site = encodeURIComponent('<img src=x onerror=boom()>/x');
  for (const hash of ['#/', '#/alerts', '#/run/hostile/overview', `#/run/hostile/numerics?role=x&statistic=amax&site=${site}`,
    '#/run/hostile/precision', '#/run/hostile/performance', '#/run/hostile/alerts', '#/compare?runs=hostile,live', '#/diff?runs=hostile,live']) {
    const { page, close } = await dash.open(hash);
    await page.waitForFunction(() => document.querySelector('main').innerText.includes('<img src=x onerror=boom()>'));
    await page.waitForTimeout(300);
    const made = await page.evaluate(() => document.querySelectorAll('main img, main script, main iframe, main [onerror], main [onload]').length);
    assert.equal(made, 0, hash);
    await close();
  }
});

test('runs without a finite loss, without statistics, without a single step are shown', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  for (const id of ['diverged', 'vanished', 'fresh']) {
    for (const tab of ['overview', 'numerics', 'precision', 'performance', 'alerts']) {
      const { page, close } = await dash.open(`#/run/${id}/${tab}`);
      await page.waitForSelector('.page');
      await page.waitForTimeout(250);
      assert.equal(await page.locator('.callout.error').count(), 0, `${id} ${tab}`);
      await close();
    }
  }
});

test('an empty folder says how to start', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const mock = await startMock({ runs: [] });
  const page = await dash.browser.newPage();
  await visit(page, mock.url);
  await page.waitForSelector('text=quaver train');
  await page.close();
  return mock.close();
});

test('where a large store takes its time a coarser picture comes first, then the whole', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  dash.mock.state.wholeAfter = 12000;
  const { page, close } = await dash.open(`#/run/${dash.recorded}/numerics?statistic=amax&role=x&site=${encodeURIComponent('blocks.0.attention.qkv/x')}`);
  const columns = () => page.evaluate(() => JSON.parse(document.querySelector('.heat-surface')?.dataset.layout ?? '{}').columns);
  await page.waitForSelector('.heat-surface', { timeout: 11000 });
  await page.waitForSelector('.panel .u-over', { timeout: 11000 });
  const coarse = await columns();
  assert.ok(coarse <= 160, `${coarse} columns`);
  await page.waitForFunction((before) => JSON.parse(document.querySelector('.heat-surface').dataset.layout).columns > before, coarse);
  dash.mock.state.wholeAfter = 0;
  await close();
});

test('a map of 1200 × 800 cells of 4,000 layers is drawn within a tenth of a second', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const { page, close } = await dash.open('#/run/deep/numerics?statistic=amax&role=x&rows=all', { viewport: { width: 1600, height: 1200 } });
  await page.getByRole('application').waitFor({ timeout: 60000 });
  const times = [];
  for (const statistic of ['underflow_percent', 'amax', 'mean', 'sqnr_db', 'kurtosis']) {
    await page.evaluate(() => performance.clearMeasures());
    await page.getByLabel('Statistic').selectOption(statistic);
    await page.waitForFunction(() => performance.getEntriesByName('heat map drawn').at(-1)?.detail === '800 x 1200', null, { timeout: 60000 });
    times.push(await page.evaluate(() => {
      const decoded = performance.getEntriesByName('numerics decoded').at(-1);
      const drawn = performance.getEntriesByName('heat map drawn').at(-1);
      return { cells: drawn.detail, drawing: drawn.duration, all: drawn.startTime + drawn.duration - decoded.startTime };
    }));
  }
  assert.equal(times[0].cells, '800 x 1200');
  // The least disturbed of five: the machine may be busy with other things.
  const drawing = Math.min(...times.map((time) => time.drawing));
  const all = Math.min(...times.map((time) => time.all));
  t.diagnostic(`800 x 1200 cells: ${drawing.toFixed(1)} ms to draw, ${all.toFixed(1)} ms from bytes to picture (best of 5)`);
  assert.ok(drawing < 100, `${drawing} ms`);
  assert.ok((await colorsOf(page.locator('.heat-cells'))) > 2);
  return close();
});

test('thousands of layers on the precision map: only rows in sight are made', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const { page, close } = await dash.open('#/run/deep/precision');
  await page.waitForSelector('.precision-grid td.format');
  assert.ok((await page.locator('.precision-grid tbody tr').count()) < 150);
  await page.locator('.precision-grid td[tabindex="0"]').focus();
  await page.keyboard.press('End');
  await page.waitForFunction(() => document.activeElement.closest('tr')?.querySelector('th')?.textContent === 'head');
  return close();
});
