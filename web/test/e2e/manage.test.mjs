// Runs are renamed, tagged, annotated, hidden, deleted and restored from the page.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startBrowser, visit } from '../browser.mjs';
import { startMock } from '../mock-server.mjs';

let dash;
before(async () => (dash = await startBrowser()));
after(() => dash.stop());

// A run that no other test needs: neither the recorded one nor one that trains.
const spare = () => dash.runs.find((run) => run.id !== dash.recorded && run.status === 'finished') ?? dash.runs.find((run) => run.id === dash.recorded);
const rowOf = (page, id) => page.locator(`table.runs tbody tr:has(a[href="#/run/${id}/overview"])`);
const openForm = async (page, id) => {
  await rowOf(page, id).getByRole('button', { name: /^Edit (?!tags)/ }).click();
  return page.locator('form.run-editor');
};

test('rename, tag and note: shown in the list and on the run\'s page, and taken back', async () => {
  const { id, name, tags } = spare();
  const { page, close } = await dash.open('#/');
  let form = await openForm(page, id);
  await form.getByLabel('Name').fill('<b>renamed</b> by test');
  await form.getByLabel('Tags').fill('managed, by test');
  await form.getByLabel('Note').fill('first line\nsecond <i>line</i>');
  await form.getByRole('button', { name: 'Save' }).click();
  await form.waitFor({ state: 'detached' });
  await rowOf(page, id).getByRole('link', { name: '<b>renamed</b> by test' }).waitFor();
  await rowOf(page, id).locator('.tag:has-text("managed")').waitFor();
  await rowOf(page, id).locator('.remark:has-text("first line")').waitFor();
  assert.equal(await page.locator('main b:has-text("renamed")').count(), 0, 'a name is text');

  await rowOf(page, id).getByRole('link', { name: '<b>renamed</b> by test' }).click();
  await page.waitForSelector(`.run-notes:has-text("trained as ${name}")`);
  assert.equal(await page.locator('.run-note').innerText(), 'first line\nsecond <i>line</i>');
  await page.getByRole('button', { name: 'Edit <b>renamed</b> by test', exact: true }).click();
  form = page.locator('form.run-editor');
  await form.getByLabel('Name').fill('');
  await form.getByLabel('Tags').fill(tags.join(', '));
  await form.getByLabel('Note').fill('');
  await form.getByRole('button', { name: 'Save' }).click();
  await page.waitForSelector(`h1:text-is("${name}")`);
  assert.equal(await page.locator('.run-note').count(), 0);
  await close();
});

test('the form by keys: Enter opens it at the name, Escape closes it and returns to its button', async () => {
  const { id, name } = spare();
  const { page, close } = await dash.open('#/');
  const button = rowOf(page, id).getByRole('button', { name: `Edit ${name}`, exact: true });
  await button.focus();
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.activeElement.closest('form.run-editor') && document.activeElement.tagName === 'INPUT');
  assert.equal(await button.getAttribute('aria-expanded'), 'true');
  await page.keyboard.press('Escape');
  await page.waitForSelector('form.run-editor', { state: 'detached' });
  await page.waitForFunction((label) => document.activeElement.getAttribute('aria-label') === label, `Edit ${name}`);
  await close();
});

test('on a machine that draws late, forms do not take the focus from what the user has turned to', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const mock = await startMock();
  t.after(() => mock.close());
  const page = await dash.browser.newPage();
  await page.addInitScript(() => { window.requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 500); });
  await visit(page, `${mock.url}#/`);
  const stays = async (element) => {
    await element.focus();
    await page.waitForTimeout(800);
    assert.ok(await element.evaluate((one) => one === document.activeElement), 'the focus went elsewhere');
  };
  await stays((await openForm(page, 'bf16-s1')).getByLabel('Note'));
  await page.keyboard.press('Escape');
  await stays(page.getByLabel('Filter runs'));
  const tags = rowOf(page, 'bf16-s1').locator('.tags');
  await tags.getByRole('button', { name: /^Edit tags/ }).click();
  await stays(tags.getByRole('button', { name: 'Cancel' }));
  await page.keyboard.press('Enter');
  await stays(page.getByLabel('Filter runs'));
  await page.close();
});

test('a hidden run is left out of the list and of compare until it is asked for', async () => {
  const { id, name } = spare();
  const { page, close } = await dash.open('#/');
  await (await openForm(page, id)).getByRole('button', { name: 'Hide' }).click();
  await rowOf(page, id).waitFor({ state: 'detached' });
  await visit(page, `${dash.base}#/compare`);
  await page.waitForSelector('.picker li');
  assert.equal(await page.locator(`.picker-name:text-is("${name}")`).count(), 0);
  await visit(page, `${dash.base}#/compare?runs=${id}`);
  await page.waitForSelector('.final tbody tr');
  await visit(page, `${dash.base}#/`);
  await page.getByLabel(/^Show hidden/).check();
  await rowOf(page, id).locator('.remark:has-text("hidden")').waitFor();
  assert.match(page.url(), /show=hidden/);
  await (await openForm(page, id)).getByRole('button', { name: 'Show in lists' }).click();
  await rowOf(page, id).locator('.remark:has-text("hidden")').waitFor({ state: 'detached' });
  await page.getByLabel(/^Show hidden/).click(); // not uncheck(): with none hidden the box goes too
  await page.waitForFunction(() => !location.hash.includes('show='));
  await rowOf(page, id).waitFor();
  await close();
});

test('a deleted run comes back by Undo, and from the deleted ones', async () => {
  const { id, name } = spare();
  const { page, close } = await dash.open('#/');
  await (await openForm(page, id)).getByRole('button', { name: 'Delete', exact: true }).click();
  await rowOf(page, id).waitFor({ state: 'detached' });
  await page.waitForSelector(`.undo-bar:has-text("${name}")`);
  await page.getByRole('button', { name: 'Undo' }).click();
  await rowOf(page, id).waitFor();
  assert.equal(await page.locator('.undo-bar').count(), 0);

  await (await openForm(page, id)).getByRole('button', { name: 'Delete', exact: true }).click();
  await rowOf(page, id).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Dismiss' }).click();
  await page.getByLabel(/^Show deleted/).check();
  await rowOf(page, id).locator('.remark:has-text("deleted")').waitFor();
  await (await openForm(page, id)).getByRole('button', { name: 'Restore' }).click();
  await rowOf(page, id).locator('.remark:has-text("deleted")').waitFor({ state: 'detached' });
  await page.getByLabel(/^Show deleted/).click(); // not uncheck(): with none deleted the box goes too
  await page.waitForFunction(() => !location.hash.includes('show='));
  await rowOf(page, id).waitFor();
  await close();
});

test('records are removed by a second act, never those of a run that trains', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server: it would lose a run');
  const mock = await startMock();
  t.after(() => mock.close());
  const page = await dash.browser.newPage();
  await visit(page, `${mock.url}#/?show=deleted`);
  for (const id of ['nvfp4-s1', 'live']) {
    await (await openForm(page, id)).getByRole('button', { name: 'Delete', exact: true }).click();
    await rowOf(page, id).locator('.remark:has-text("deleted")').waitFor();
  }
  const live = await openForm(page, 'live');
  assert.ok(await live.getByRole('button', { name: 'Delete for good…' }).isDisabled());
  await live.getByRole('button', { name: 'Cancel' }).click();
  const form = await openForm(page, 'nvfp4-s1');
  await form.getByRole('button', { name: 'Delete for good…' }).click();
  assert.equal(mock.requests.filter((path) => path.endsWith('/removal')).length, 0, 'asked once, nothing is removed');
  await form.getByRole('button', { name: /cannot be undone/ }).click();
  await rowOf(page, 'nvfp4-s1').waitFor({ state: 'detached' });
  assert.ok(!mock.runs.some((run) => run.id === 'nvfp4-s1'));
  await page.close();
});

test('a server that was started anew has another token, and the page finds it', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const mock = await startMock();
  t.after(() => mock.close());
  const page = await dash.browser.newPage();
  await visit(page, `${mock.url}#/`);
  for (const [token, note] of [['first token', 'one'], ['second token', 'two']]) {
    mock.state.changeToken = token;
    const form = await openForm(page, 'bf16-s1');
    await form.getByLabel('Note').fill(note);
    await form.getByRole('button', { name: 'Save' }).click();
    await rowOf(page, 'bf16-s1').locator(`.remark:has-text("${note}")`).waitFor();
  }
  await page.close();
});

test('where nothing can be changed nothing is offered', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const mock = await startMock();
  t.after(() => mock.close());
  mock.state.changeToken = null;
  const page = await dash.browser.newPage();
  await visit(page, `${mock.url}#/`);
  await page.waitForSelector('footer:has-text("read only")');
  assert.equal(await page.getByRole('button', { name: /^Edit/ }).count(), 0);
  await page.close();
});

test('stores in folders below, folders that are gone and stores that cannot be read are said', async (t) => {
  if (!dash.mock) return t.skip('needs the mock server');
  const mock = await startMock();
  t.after(() => mock.close());
  mock.state.problems = [{ what: 'bad/quaver.db is not a store of runs', remedy: 'move it away' }];
  const page = await dash.browser.newPage();
  await visit(page, `${mock.url}#/`);
  await rowOf(page, 'bf16-s3').locator('.remark:has-text("sweep/wide/")').waitFor();
  await rowOf(page, 'vanished').locator('.remark:has-text("its folder is gone: vanished")').waitFor();
  await page.waitForSelector('.callout:has-text("bad/quaver.db")');
  await visit(page, `${mock.url}#/run/vanished/overview`);
  await page.waitForSelector('.run-notes:has-text("its folder is gone: vanished")');
  await page.close();
});
