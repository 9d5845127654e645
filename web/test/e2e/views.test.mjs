// Every view, by desk and in the hand, light and dark: it draws, nothing is wrong, all controls can be reached by keys.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { colorsOf, startBrowser, unreachable, visit } from '../browser.mjs';

let dash;
before(async () => (dash = await startBrowser()));
after(() => dash.stop());

const looks = {
  'desktop, light': { viewport: { width: 1280, height: 720 }, colorScheme: 'light' },
  'desktop, dark': { viewport: { width: 1280, height: 720 }, colorScheme: 'dark' },
  'mobile, light': { viewport: { width: 390, height: 844 }, colorScheme: 'light', hasTouch: true },
  'mobile, dark': { viewport: { width: 390, height: 844 }, colorScheme: 'dark', reducedMotion: 'reduce' },
};

// Every look with the mock server; with a real one, which sends the same, the two that differ most.
const chosen = Object.entries(looks).filter(([look]) => !process.env.QUAVER_DASH_URL || ['desktop, light', 'mobile, dark'].includes(look));

const views = {
  runs: { hash: () => '#/', waits: 'table.runs tbody tr' },
  overview: { hash: (run) => `#/run/${run}/overview`, waits: '.plot canvas', canvas: '.plot canvas' },
  numerics: { hash: (run) => `#/run/${run}/numerics?statistic=amax&role=x`, waits: '.heat-cells', canvas: '.heat-cells' },
  precision: { hash: (run) => `#/run/${run}/precision`, waits: '.precision-grid td.format' },
  performance: { hash: (run) => `#/run/${run}/performance`, waits: '.plot canvas', canvas: '.plot canvas' },
  'alerts of the run': { hash: (run) => `#/run/${run}/alerts`, waits: '.alerts .alert, .empty' },
  'alerts of all': { hash: () => '#/alerts', waits: '.alerts .alert, .empty' },
  compare: { hash: (run) => `#/compare?runs=${dash.runs.filter((one) => one.step > 0).slice(0, 3).map((one) => one.id).join(',') || run}`, waits: '.plot canvas', canvas: '.plot canvas' },
  difference: { hash: (run) => `#/diff?runs=${run},${dash.runs.find((one) => one.id !== run)?.id ?? run}`, waits: 'table.diff, .page p.quiet' },
};

for (const [name, view] of Object.entries(views)) {
  for (const [look, options] of chosen) {
    test(`${name}: ${look}`, async () => {
      const { page, close } = await dash.open(view.hash(dash.recorded), options);
      await page.waitForSelector(view.waits, { timeout: 15000 });
      if (view.canvas) {
        await page.waitForTimeout(200);
        for (const canvas of await page.$$(view.canvas)) assert.ok((await colorsOf(canvas)) > 2, 'a canvas is blank');
      }
      const tooWide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(tooWide <= 0, `${tooWide} px wider than the window`);
      assert.deepEqual(await unreachable(page), []);
      assert.equal(await page.locator('.callout.error').count(), 0);
      await close();
    });
  }
}

test('performance of several ranks: communication, the slowest one, memory of each', async (t) => {
  if (!dash.mock) return t.skip('needs the runs of the mock');
  const { page, close } = await dash.open('#/run/nvfp4-s1/performance');
  await page.waitForSelector('.plot canvas');
  const text = async (selector) => (await page.locator(selector).allInnerTexts()).join(' ');
  assert.match(await text('dl.figures'), /Slowest rank\s+3\s+latest; rank 3 on node-1/);
  assert.match(await text('.page'), /Communication in a step/);
  const card = page.locator('.card', { hasText: 'Memory by rank' });
  assert.deepEqual(await card.locator('tbody th').allInnerTexts(), [3, 2, 1, 0].map((rank) => `rank ${rank} on node-${Math.floor(rank / 2)}`));
  await close();
});

test('performance of one process says nothing of ranks', async (t) => {
  if (!dash.mock) return t.skip('needs the runs of the mock');
  const { page, close } = await dash.open('#/run/fp8-s1/performance');
  await page.waitForSelector('.plot canvas');
  assert.doesNotMatch((await page.locator('.page').innerText()), /rank/);
  await close();
});

test('Tab walks through the page, beginning with the skip link, and always shows where it is', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/overview`);
  await page.waitForSelector('.plot canvas');
  await page.keyboard.press('Tab');
  assert.match(await page.evaluate(() => document.activeElement.textContent), /Skip/);
  const seen = new Set();
  for (let i = 0; i < 25; ++i) {
    await page.keyboard.press('Tab');
    const { what, outlined } = await page.evaluate(() => {
      const active = document.activeElement;
      const shown = active.type === 'radio' ? active.nextElementSibling : active;
      return { what: active.outerHTML.slice(0, 80), outlined: getComputedStyle(shown).outlineStyle !== 'none' };
    });
    assert.ok(outlined, `no outline: ${what}`);
    seen.add(what);
  }
  assert.ok(seen.size > 15);
  await close();
});

test('the skip link leads to the content', async () => {
  const { page, close } = await dash.open('#/');
  await page.waitForSelector('table.runs');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  await close();
});

test('light or dark is remembered', async () => {
  const { page, close } = await dash.open('#/', { colorScheme: 'light' });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.waitForSelector('table.runs');
  const light = await background();
  const button = page.getByRole('button', { name: /Colors/ });
  await button.click();
  await button.click();
  const dark = await background();
  assert.notEqual(dark, light);
  await page.reload();
  await page.waitForSelector('table.runs');
  assert.equal(await background(), dark);
  await close();
});

test('an unknown run and an unknown page say what to do', async () => {
  const { page, troubles } = await dash.open('#/run/no-such-run/overview');
  await page.waitForSelector('.callout.error');
  await visit(page, `${dash.base}#/nowhere`);
  await page.waitForSelector('.empty');
  assert.ok(troubles.every((trouble) => trouble.includes('404')), troubles.join('\n'));
});
