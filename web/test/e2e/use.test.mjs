// Using it: filter, sort, pick, tag; the heat map by mouse and keys; the way back.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startBrowser } from '../browser.mjs';

let dash;
before(async () => (dash = await startBrowser()));
after(() => dash.stop());

test('runs: filter and sort are in the address, and the filter leaves what matches', async () => {
  const { page, close } = await dash.open('#/');
  await page.waitForSelector('table.runs tbody tr');
  const all = await page.locator('table.runs tbody tr').count();
  const name = await page.locator('table.runs tbody th.name').first().innerText();
  await page.getByLabel('Filter runs').fill(name);
  const left = await page.locator('table.runs tbody tr').count();
  assert.ok(left >= 1 && left <= all);
  await page.getByRole('button', { name: 'Loss', exact: true }).click();
  assert.match(page.url(), /filter=.*sort=loss/);
  assert.equal(await page.locator('th[aria-sort="descending"]').innerText(), 'Loss↓'.replace('↓', ''));
  await close();
});

test('two picked runs are compared, and their configs are laid side by side', async (t) => {
  if (dash.runs.length < 2) return t.skip('the store has one run');
  const { page, close } = await dash.open('#/');
  await page.waitForSelector('table.runs tbody tr');
  const boxes = page.locator('table.runs tbody input[type=checkbox]');
  await boxes.nth(0).check();
  await boxes.nth(1).check();
  await page.getByRole('link', { name: 'Config difference' }).click();
  await page.waitForSelector('h1:has-text("Config difference")');
  await page.getByRole('link', { name: 'Compare curves' }).click();
  await page.waitForSelector('.final table');
  assert.equal(await page.locator('.final tbody tr').count(), 2);
  assert.match(await page.locator('figure .note').last().innerText(), /seed/);
  await page.goBack();
  await page.waitForSelector('h1:has-text("Config difference")');
  return close();
});

test('tags are saved and shown, and can be taken away again', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/overview`);
  await page.waitForSelector('.run-head');
  const before = await page.locator('.run-head .tag').allInnerTexts();
  const edit = async (text) => {
    await page.getByRole('button', { name: /^Edit tags of/ }).click();
    await page.getByLabel(/separated by commas/).fill(text);
    await page.keyboard.press('Enter');
  };
  await edit([...before, 'tried-by-test'].join(', '));
  await page.waitForSelector('.run-head .tag:has-text("tried-by-test")');
  await edit(before.join(', '));
  await page.waitForSelector('.run-head .tag:has-text("tried-by-test")', { state: 'detached' });
  await close();
});

test('the heat map by keys: arrows read, Enter opens the site, Escape closes it', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/numerics?statistic=amax&role=x`);
  const map = page.getByRole('application');
  await map.waitFor();
  await map.focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowLeft');
  const said = await page.locator('.heat + span, .heat > span[aria-live]').first().textContent();
  assert.match(said, /step/);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.panel .binades svg');
  assert.match(page.url(), /site=/);
  assert.ok(await page.evaluate(() => document.activeElement.tagName === 'H2'), 'the panel has the focus');
  await page.waitForSelector('.histories .plot canvas');
  assert.ok((await page.locator('.panel .binade').count()) > 3);
  await page.keyboard.press('Escape');
  await page.waitForSelector('.panel', { state: 'detached' });
  await page.goBack();
  await page.waitForSelector('.panel');
  await close();
});

test('the heat map by mouse: a click opens, a drag zooms into the steps, Back returns', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/numerics?statistic=amax&role=x`);
  const map = page.getByRole('application');
  await map.waitFor();
  const box = await map.boundingBox();
  const y = box.y + box.height / 3;
  await page.mouse.move(box.x + box.width * 0.4, y);
  await page.waitForSelector('.tip');
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.7, y, { steps: 4 });
  await page.mouse.up();
  await page.waitForFunction(() => location.hash.includes('from='));
  await page.goBack();
  await page.waitForFunction(() => !location.hash.includes('from='));
  await map.waitFor();
  await page.mouse.click(box.x + box.width * 0.5, y);
  await page.waitForSelector('.panel .binades svg');
  await close();
});

test('every statistic and role can be shown', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/numerics`);
  await page.getByLabel('Statistic').waitFor();
  const names = await page.getByLabel('Statistic').locator('option').evaluateAll((options) => options.map((option) => option.value));
  assert.ok(names.length > 5);
  for (const role of ['x', 'w', 'dy']) {
    await page.locator(`.segments input[value="${role}"]`).check({ force: true });
    for (const name of names) {
      await page.getByLabel('Statistic').selectOption(name);
      await page.waitForFunction(([statistic, wanted]) => {
        const map = document.querySelector(`[data-map="${statistic} ${wanted}"]`);
        return map !== null || document.querySelector('.numerics .empty') !== null;
      }, [name, role]);
    }
  }
  await close();
});

test('charts are read by keys, and log axes and smoothing are in the address', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/overview`);
  const plot = page.locator('.plot').first();
  await plot.locator('canvas').waitFor();
  await plot.focus();
  await page.keyboard.press('Home');
  const first = await page.locator('.legend-x').first().innerText();
  await page.keyboard.press('End');
  assert.notEqual(await page.locator('.legend-x').first().innerText(), first);
  await page.getByLabel('log y').check();
  await page.getByLabel('Smoothing').fill('60');
  await page.locator('.segments input[value="tokens"]').check({ force: true });
  await page.waitForFunction(() => /logy=1/.test(location.hash) && /smooth=60/.test(location.hash) && /x=tokens/.test(location.hash));
  assert.match(await page.locator('.legend-x').first().innerText(), /tokens/);
  await close();
});

test('the precision map by keys: reasons appear, Enter leads to the numerics', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/precision`);
  await page.waitForSelector('.precision-grid td.format');
  await page.locator('.precision-grid td[tabindex="0"]').focus();
  const first = await page.locator('.precision-side h3').first().innerText();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowDown');
  assert.notEqual(await page.locator('.precision-side h3').first().innerText(), first);
  await page.keyboard.press('End');
  await page.waitForFunction(() => document.activeElement.closest('.precision-grid tbody tr:last-child') !== null);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.panel');
  await close();
});

test('an alert leads to its site', async (t) => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/alerts`);
  await page.waitForSelector('.alerts .alert, .empty');
  const link = page.locator('.alert-links a[href*="site="]').first();
  if ((await link.count()) === 0) return t.skip('the run has no alert of a site');
  assert.match(await page.locator('.alert .badge').first().innerText(), /info|warning|critical/);
  await link.click();
  await page.waitForSelector('.panel h2');
  return close();
});

test('a run that was resumed otherwise says which steps had which recipe and seed', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const { page, close } = await dash.open('#/run/vanished/overview');
  await page.waitForSelector('.run-facts');
  assert.match(await page.locator('.run-facts').innerText(), /bf16 to step 200, then fp8-delayed · seed 4 to step 200, then 1$/);
  assert.match(await page.locator('table.settings').innerText(), /optim\.learning_rate\s+0\.001 to step 300, then 0\.0006/);
  await close();
});
