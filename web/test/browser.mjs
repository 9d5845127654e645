// A browser on the dashboard: the mock server, or the one at QUAVER_DASH_URL. Everything that goes wrong on a page is
// collected and must be nothing when it is closed.
//
// QUAVER_DASH_URL       the server to test, e.g. http://127.0.0.1:8080/ (with ?token=… where it wants one)
// QUAVER_DASH_RUN       a recorded run of it, by id; else the first that has steps and is not running
// QUAVER_DASH_LIVE_RUN  a run that is training; else the first that is; without one the live tests are skipped
// QUAVER_BROWSER        chromium (the default) or firefox, which is driven by WebDriver BiDi, as it comes
// QUAVER_CHROMIUM       the browser; else /usr/bin/chromium
// QUAVER_FIREFOX        the same; else /usr/bin/firefox-esr
import assert from 'node:assert/strict';
import playwright from 'playwright-core';
import { startMock } from './mock-server.mjs';

export const browserName = process.env.QUAVER_BROWSER ?? 'chromium';

export function launch() {
  if (browserName === 'firefox') return playwright._bidiFirefox.launch({ executablePath: process.env.QUAVER_FIREFOX ?? '/usr/bin/firefox-esr' });
  return playwright.chromium.launch({ executablePath: process.env.QUAVER_CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
}

export async function startBrowser() {
  const given = process.env.QUAVER_DASH_URL;
  const mock = given ? undefined : await startMock();
  const browser = await launch();
  const start = given ?? mock.url;
  const base = new URL('/', start).href;
  const runs = await runsOf(browser, start, base);
  const recorded = process.env.QUAVER_DASH_RUN ?? (mock ? 'fp8-s1' : runs.find((run) => run.status !== 'running' && run.step > 0)?.id);
  const live = process.env.QUAVER_DASH_LIVE_RUN ?? (mock ? 'live' : runs.find((run) => run.status === 'running')?.id);

  return {
    mock, base, runs, recorded, live, browser,
    async open(hash, options = {}) {
      const context = await browser.newContext({ viewport: { width: 1280, height: 720 }, ...options });
      context.setDefaultTimeout(60000); // a busy machine is no fault of the page
      if (given?.includes('token=')) await (await context.newPage()).goto(given);
      const page = await context.newPage();
      const troubles = [];
      page.on('console', (message) => {
        // Most runs have no localization: the browser reports that answer by itself.
        const expected = /\/documents\//.test(message.location().url) && message.text().includes('404');
        if (message.type() === 'error' && !expected) troubles.push(`console: ${message.text()} ${message.location().url}`);
      });
      page.on('pageerror', (error) => troubles.push(`exception: ${error}`));
      await page.addInitScript(() => {
        window.attacks = 0;
        window.boom = () => ++window.attacks;
        document.addEventListener('securitypolicyviolation', (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`));
      });
      await page.goto(base + hash);
      return {
        page,
        troubles,
        async close() {
          assert.equal(await page.evaluate(() => window.attacks), 0, 'text of the server was run as code');
          assert.deepEqual(troubles, []);
          await context.close();
        },
      };
    },
    async stop() {
      await browser.close();
      await mock?.close();
    },
  };
}

// Goes to an address. Over WebDriver BiDi a change of the fragment alone is waited for in vain: the page makes it itself.
export async function visit(page, url) {
  const [now] = page.url().split('#');
  const [to, fragment] = url.split('#');
  if (browserName !== 'firefox' || now !== to || fragment === undefined) return page.goto(url);
  return page.evaluate((hash) => { location.hash = hash; }, fragment);
}

async function runsOf(browser, start, base) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(start);
  const runs = await page.evaluate(async (url) => (await (await fetch(url)).json()).runs, `${base}api/runs`);
  await context.close();
  return runs;
}

// How many different colors an element's canvas shows: 1 is blank.
export function colorsOf(canvas) {
  return canvas.evaluate((element) => {
    const { width, height } = element;
    const pixels = new Uint32Array(element.getContext('2d').getImageData(0, 0, width, height).data.buffer);
    const seen = new Set();
    for (let i = 0; i < pixels.length && seen.size < 64; i += 3) seen.add(pixels[i]);
    return seen.size;
  });
}

// Every control in sight, by Tab alone: those that were not reached.
export async function unreachable(page) {
  return page.evaluate(() => {
    const all = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')].filter((element) => {
      if (element.disabled || element.closest('[aria-hidden="true"]')) return false;
      if (element.type === 'radio' && !element.checked) return false;
      return element.getClientRects().length > 0;
    });
    return all.filter((element) => element.tabIndex < 0).map((element) => element.outerHTML.slice(0, 120));
  });
}
