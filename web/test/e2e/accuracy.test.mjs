// Classifiers of images: accuracies beside losses, images where others count tokens.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startBrowser } from '../browser.mjs';
import { makeClassifiers } from '../mock-data.mjs';

let dash;
const classifiers = makeClassifiers();
before(async () => {
  dash = await startBrowser();
  dash.mock?.runs.push(...classifiers);
});
after(() => dash.stop());

const [wide, , narrow] = classifiers;
const accuracyOf = async (id) => (await (await fetch(`${dash.base}api/runs/${id}`)).json()).validation_accuracy;
const percent = (share) => (100 * share).toFixed(2);
const cells = (page, rows) => page.locator(rows).evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.innerText.trim())));
const titles = async (page, table) => (await cells(page, `${table} thead tr`))[0];

test('the list has accuracies where a run has one, sorts by them, and says what each run counts', async (t) => {
  if (!dash.mock) return t.skip('needs the runs of the mock');
  const { page, close } = await dash.open('#/');
  await page.waitForSelector('table.runs tbody tr');
  assert.ok((await titles(page, 'table.runs')).some((title) => /^Validation\s+accuracy$/.test(title)));
  const row = page.locator('table.runs tr', { hasText: wide.name });
  assert.equal(await row.locator('.accuracy').innerText(), `${percent(await accuracyOf(wide.id))} %`);
  assert.match(await row.locator('.speed').innerText(), /^2\.13k\s+images\/s$/);
  assert.match(await page.locator('table.runs tr', { hasText: 'fp8 seed 1' }).locator('.speed').innerText(), /\stokens\/s$/);
  await page.getByLabel('Filter runs').fill('images');
  await page.waitForFunction(() => document.querySelectorAll('table.runs tbody tr').length === 4);
  assert.ok((await titles(page, 'table.runs')).includes('Images/s'));
  await page.getByRole('button', { name: 'accuracy' }).click();
  await page.waitForFunction(() => location.hash.includes('sort=validation_accuracy'));
  const shown = await page.locator('td .accuracy').allInnerTexts();
  assert.deepEqual(shown, [...shown].sort().reverse());
  await page.getByLabel('Filter runs').fill('seed');
  await page.waitForFunction(() => !document.querySelector('td .accuracy'));
  assert.ok((await titles(page, 'table.runs')).includes('Tokens/s'));
  await close();
});

test('the overview has the accuracy, its curve and the best that is possible', async (t) => {
  if (!dash.mock) return t.skip('needs the runs of the mock');
  const { page, close } = await dash.open(`#/run/${wide.id}/overview?x=tokens`);
  await page.waitForSelector('.plot canvas');
  const figure = await page.locator('.figure', { hasText: 'Val. accuracy' }).innerText();
  assert.match(figure, new RegExp(`${percent(await accuracyOf(wide.id))} %`));
  const chart = page.locator('.chart', { hasText: 'Validation accuracy' });
  assert.match(await chart.locator('.legend').innerText(), /best possible\s+99\.69 %/);
  const parts = await page.locator('.figures, .toolbar, .chart').allInnerTexts(); // events may speak of anything
  const text = parts.join('\n');
  assert.match(text, /Images per second/);
  assert.doesNotMatch(text, /\btokens\b/i);
  assert.doesNotMatch(text, /perplexity/);
  await close();
});

test('a language model has none of this', async (t) => {
  if (!dash.mock) return t.skip('needs the runs of the mock');
  const { page, close } = await dash.open('#/run/fp8-s1/overview');
  await page.waitForSelector('.plot canvas');
  const text = await page.locator('main').innerText();
  assert.doesNotMatch(text, /accuracy|images/i);
  assert.match(text, /perplexity/);
  await close();
});

test('the comparison has accuracies in its table and as curves, of seeds together and one by one', async (t) => {
  if (!dash.mock) return t.skip('needs the runs of the mock');
  const hash = `#/compare?runs=${classifiers.map((run) => run.id).join(',')}`;
  const { page, close } = await dash.open(hash);
  await page.waitForSelector('.final tr.group');
  const column = (await titles(page, '.final table')).indexOf('Accuracy %');
  assert.ok(column > 0);
  const own = [percent(await accuracyOf(wide.id)), percent(await accuracyOf(classifiers[1].id))];
  const rows = await cells(page, '.final tbody tr');
  assert.match(rows[0][column], /^\d\d\.\d\d ± \d\.\d\d$/);
  assert.deepEqual([rows[1][column], rows[2][column]], own);
  assert.ok((await titles(page, '.final table')).includes('Images/s'));
  assert.equal(await page.locator('.chart', { hasText: 'Validation accuracy' }).locator('canvas').count() > 0, true);
  await page.getByLabel('group seeds').uncheck();
  await page.waitForFunction(() => !document.querySelector('.final tr.group'));
  const single = (await titles(page, '.final table')).indexOf('Accuracy %');
  assert.equal((await cells(page, '.final tbody tr'))[0][single], own[0]);
  assert.match((await cells(page, '.final tbody tr'))[2][single + 1], /^[+−±]\d\.\d\d$/);
  assert.ok((await page.locator('.chart', { hasText: 'Validation accuracy' }).count()) > 0);
  await page.getByLabel('Metric', { exact: true }).selectOption('validation_accuracy');
  await page.waitForFunction(() => location.hash.includes('metric=validation_accuracy'));
  await close();
});

test('two runs side by side end with their metrics', async (t) => {
  if (!dash.mock) return t.skip('needs the runs of the mock');
  const { page, close } = await dash.open(`#/diff?runs=${wide.id},${narrow.id}`);
  await page.waitForSelector('.outcome table');
  const row = (await cells(page, '.outcome tbody tr')).find((one) => one[0] === 'Validation accuracy');
  assert.deepEqual(row.slice(1, 3), [`${percent(await accuracyOf(wide.id))} %`, `${percent(await accuracyOf(narrow.id))} %`]);
  await close();
});
