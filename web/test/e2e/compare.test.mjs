// Runs that differ in the seed alone, taken together.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startBrowser } from '../browser.mjs';

let dash;
before(async () => (dash = await startBrowser()));
after(() => dash.stop());

const hash = (more = '') => `#/compare?runs=fp8-s1,bf16-s1,bf16-s2,bf16-s3${more}`;
const rows = (page) => page.locator('.final tbody tr').evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.innerText.trim())));

test('seeds are one group: mean ± σ, every seed listed, the widest recipe is the base', async (t) => {
  if (!dash.mock) return t.skip('needs the runs of the mock');
  const { page, close } = await dash.open(hash());
  await page.waitForSelector('.final tr.group');
  const all = await rows(page);
  assert.equal(all.length, 6, 'two groups and four runs');
  assert.match(all[0][0], /^fp8 seed 1$/);
  assert.match(all[2][0], /^bf16 base$/);
  const runs = dash.runs.filter((run) => run.group === 'bf16');
  const losses = runs.map((run) => run.final_train_loss);
  const mean = (losses[0] + losses[1] + losses[2]) / 3;
  const deviation = Math.sqrt(((losses[0] - mean) ** 2 + (losses[1] - mean) ** 2 + (losses[2] - mean) ** 2) / 2);
  assert.equal(all[2][4], `${mean.toFixed(4)} ± ${deviation.toFixed(4)}`);
  assert.equal(all[2][6], 'base');
  const [own, base] = ['fp8-s1', 'bf16-s1'].map((id) => dash.runs.find((run) => run.id === id).validation_loss);
  assert.equal(Number(all[0][6].replace('−', '-')), Number(((100 * (own - base)) / base).toFixed(2)), 'of seed 1, which both have');
  for (const run of runs) assert.ok(all.some((row) => row[0].startsWith(run.name) && row[0].endsWith(`seed ${run.seed}`)));
  assert.match(await page.locator('.legend').first().innerText(), /bf16 \(base\), mean of 3 ± σ/);
  await close();
});

test('the base can be chosen, the seeds shown one by one, and both are in the address', async (t) => {
  if (!dash.mock) return t.skip('needs the runs of the mock');
  const { page, close } = await dash.open(hash());
  await page.waitForSelector('.final tr.group');
  await page.getByLabel('Base').selectOption({ label: 'fp8 seed 1' });
  await page.waitForFunction(() => location.hash.includes('base=fp8-s1'));
  assert.match((await rows(page))[0][0], /fp8 seed 1 base/);
  await page.getByLabel('group seeds').uncheck();
  await page.waitForFunction(() => location.hash.includes('seeds=each'));
  assert.equal(await page.locator('.final tr.group').count(), 0);
  assert.equal((await rows(page)).length, 4);
  await close();
});

test('a run shows one final training loss: in the list, the overview and the comparison', async (t) => {
  if (!dash.mock) return t.skip('needs the runs of the mock');
  const expected = dash.runs.find((run) => run.id === 'fp8-s1').final_train_loss.toFixed(4);
  const { page, close } = await dash.open('#/');
  await page.waitForSelector('table.runs tbody tr');
  assert.equal(await page.locator('table.runs tr', { hasText: 'fp8 seed 1' }).locator('[data-label=Loss]').innerText(), expected);
  await page.evaluate(() => (location.hash = '#/run/fp8-s1/overview'));
  await page.waitForSelector('.figures');
  assert.match(await page.locator('.figure', { hasText: 'Final training loss' }).innerText(), new RegExp(expected));
  await page.evaluate((to) => (location.hash = to), hash('&seeds=each'));
  await page.waitForSelector('.final table');
  assert.equal((await rows(page)).find((row) => row[0].startsWith('fp8 seed 1'))[5], expected);
  await close();
});
