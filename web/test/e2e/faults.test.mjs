// Six runs with a fault planted in one site each, and a healthy one in 4 bits (scripts/dash-test makes them): whoever
// follows Runs → alert → site lands on the planted site, colored as bad; the healthy run has no bad cell anywhere.
//
// QUAVER_PLANTED  the site of each run's fault, as JSON; without it there is nothing to test here
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startBrowser, visit } from '../browser.mjs';

const planted = JSON.parse(process.env.QUAVER_PLANTED ?? '{}');
const skip = Object.keys(planted).length === 0 ? 'no runs with planted faults' : false;

let dash;
before(async () => (dash = skip ? undefined : await startBrowser()));
after(() => dash?.stop());

// Red by far: a color of the ramp's bad end.
const isBad = ([red, green, blue]) => red > 140 && green < 100 && blue < 90;

// The colors of a row of the map, in the order of its columns.
async function colorsOfRow(page, layer) {
  const told = await page.locator('.heat-surface').evaluate((surface, name) => {
    const canvas = surface.querySelector('.heat-cells');
    const layout = JSON.parse(surface.dataset.layout);
    const row = layout.names.indexOf(name);
    const ratio = window.devicePixelRatio || 1;
    const context = canvas.getContext('2d');
    return Array.from({ length: layout.columns }, (_, column) => {
      const x = layout.left + ((column + 0.5) / layout.columns) * layout.width;
      const y = layout.top + ((row + 0.5) / layout.names.length) * layout.height;
      return [...context.getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data];
    });
  }, layer);
  return told;
}

for (const [name, site] of Object.entries(planted).filter(([, where]) => where !== '')) {
  test(`${name}: from the list of runs to ${site} in three clicks`, { skip }, async () => {
    const { page, close } = await dash.open('#/');
    await page.click(`table.runs tr:has-text("${name}") a.alert-count`);
    await page.click('.alerts .alert >> nth=0 >> .alert-text a');
    await page.waitForSelector('.heat-cells');
    await page.waitForSelector('.panel h2');
    assert.equal(await page.textContent('.panel h2'), site);
    const critical = dash.runs.find((one) => one.name === name).critical_alerts > 0;
    assert.equal(await page.locator('.count.critical').count(), critical ? 1 : 0, 'the tab says how grave its alerts are');
    await page.waitForFunction(() => document.querySelector('[data-bad-cells]') !== null);
    const layer = site.slice(0, site.lastIndexOf('/'));
    const colors = await colorsOfRow(page, layer);
    assert.ok(colors.some(isBad), `no cell of ${layer} is bad: ${JSON.stringify(colors)}`);
    await close();
  });
}

for (const [name, site] of Object.entries(planted).filter(([, where]) => where !== '')) {
  test(`${name}: the map as it opens shows ${site}, without a click`, { skip }, async () => {
    const run = dash.runs.find((one) => one.name === name);
    const { page, close } = await dash.open(`#/run/${run.id}/numerics`);
    await page.waitForSelector('.suspects li');
    assert.ok((await page.textContent('.suspects li >> nth=0')).includes(site), 'the line above the map names it');
    await page.waitForFunction((role) => document.querySelector(`[data-map$=" ${role}"]`) !== null, site.split('/').pop());
    const layer = site.slice(0, site.lastIndexOf('/'));
    assert.ok((await colorsOfRow(page, layer)).some(isBad), `no cell of ${layer} is bad`);
    const layout = JSON.parse(await page.locator('.heat-surface').getAttribute('data-layout'));
    assert.ok(layout.marks.some(([row]) => layout.names[row] === layer), 'the row has a mark');
    await close();
  });
}

test('a healthy run in 4 bits has no bad cell, whatever is looked at', { skip }, async () => {
  const run = dash.runs.find((one) => one.name === 'healthy');
  const { page, close } = await dash.open(`#/run/${run.id}/numerics`);
  await page.waitForSelector('[data-bad-cells]', { state: 'attached' });
  const statistics = await page.locator('.toolbar select >> nth=0').evaluate((select) => [...select.options].map((one) => one.value));
  let maps = 0;
  for (const role of ['x', 'w', 'dy']) {
    for (const statistic of statistics) {
      await visit(page, `${dash.base}#/run/${run.id}/numerics?statistic=${statistic}&role=${role}`);
      await page.waitForSelector(`[data-map="${statistic} ${role}"], .empty`, { state: 'attached' });
      if (await page.locator('.empty').count() > 0) continue;
      assert.equal(await page.locator('[data-bad-cells]').getAttribute('data-bad-cells'), '0', `${statistic} of ${role}`);
      ++maps;
    }
  }
  assert.ok(maps > 20, `only ${maps} maps were drawn`);
  assert.equal(run.alerts, 0);
  await close();
});

test('a site shows what it is stored as, beside what it could be', { skip }, async () => {
  const run = dash.runs.find((one) => one.name === 'saturated');
  const { page, close } = await dash.open(`#/run/${run.id}/numerics?site=${encodeURIComponent(planted.saturated)}&step=30`);
  const row = page.locator('tr.as-stored');
  await row.waitFor();
  const saturated = Number((await row.locator('td >> nth=2').textContent()).replace(/[^0-9.]/g, ''));
  assert.ok(saturated > 80, `${saturated} % saturate`);
  const others = await page.locator('table:has(tr.as-stored) tbody tr:not(.as-stored) th').allTextContents();
  assert.ok(others.length >= 5 && others.every((text) => text.includes('at its best scale')), others.join());
  await close();
});

test('the precision map marks the site that has alerts', { skip }, async () => {
  const run = dash.runs.find((one) => one.name === 'underflowing');
  const { page, close } = await dash.open(`#/run/${run.id}/precision`);
  await page.waitForSelector('.alerted');
  const layers = await page.locator('tr:has(.alerted.severity-critical) th').allTextContents();
  assert.deepEqual(layers, [planted.underflowing.split('/')[0]]);
  await close();
});

test('the overview draws what saturated and was skipped, and says so where no rule tripped', { skip }, async () => {
  const run = dash.runs.find((one) => one.name === 'nan');
  const { page, close } = await dash.open(`#/run/${run.id}/overview`);
  await page.waitForSelector('text=Overflows and skipped steps');
  await page.waitForSelector('text=Saturated elements per step');
  const skipped = Number(await page.locator('.figure:has-text("Skipped steps") strong').textContent());
  assert.ok(skipped > 5, `${skipped} skipped`);
  await close();
});
