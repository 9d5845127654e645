// Charts as files, under the page's own policy, and the zoom in the address.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { browserName, startBrowser } from '../browser.mjs';

let dash;
before(async () => (dash = await startBrowser()));
after(() => dash.stop());

// The file that a button gives. Firefox, driven by WebDriver BiDi, tells nothing of downloads: there the link that the
// page clicks is asked for what it leads to.
async function saved(page, name, press = () => page.getByRole('button', { name, exact: true }).click()) {
  if (browserName !== 'firefox') {
    const [file] = await Promise.all([page.waitForEvent('download'), press()]);
    return { name: file.suggestedFilename(), bytes: await readFile(await file.path()) };
  }
  await watchLinks(page);
  await press();
  return linkedFile(page);
}

const watchLinks = (page) => page.evaluate(() => {
  const blobs = new Map();
  const create = URL.createObjectURL;
  URL.createObjectURL = (blob) => {
    const url = create.call(URL, blob);
    blobs.set(url, blob);
    return url;
  };
  window.saved = undefined;
  HTMLAnchorElement.prototype.click = function click() {
    if (!this.hasAttribute('download')) throw new Error('a link was clicked that saves nothing');
    window.saved = { name: this.download, blob: blobs.get(this.href) };
  };
});

async function linkedFile(page) {
  await page.waitForFunction(() => window.saved !== undefined);
  const { name, bytes } = await page.evaluate(async () => (
    { name: window.saved.name, bytes: [...new Uint8Array(await window.saved.blob.arrayBuffer())] }));
  return { name, bytes: Buffer.from(bytes) };
}

async function drag(page, plot, from, to) {
  const box = await plot.locator('.u-over').boundingBox();
  await page.mouse.move(box.x + from * box.width, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + to * box.width, box.y + box.height / 2, { steps: 6 });
  await page.mouse.up();
}

const zoomIn = (page) => page.evaluate(() => new URLSearchParams(location.hash.split('?')[1] ?? '').get('zoom'));
const lossPlot = (page) => page.locator('figure', { has: page.getByRole('heading', { name: 'Loss', exact: true }) });

test('a line chart is saved as CSV with a header, without the lines that are hidden', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/overview?smooth=0`);
  await page.waitForSelector('.plot canvas');
  const all = await saved(page, 'Save Loss as CSV');
  assert.equal(all.name, 'loss.csv');
  const lines = all.bytes.toString().split('\r\n');
  assert.equal(lines[0], 'step,training,validation');
  assert.ok(lines.length > 100);
  assert.match(lines[1], /^\d+,[\d.e-]+,/);
  await lossPlot(page).getByRole('button', { name: /^validation/ }).click();
  assert.equal((await saved(page, 'Save Loss as CSV')).bytes.toString().split('\r\n')[0], 'step,training');
  await close();
});

test('a line chart is saved as a PNG that holds more than the plot', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/overview`);
  await page.waitForSelector('.plot canvas');
  const { name, bytes } = await saved(page, 'Save Loss as PNG');
  assert.equal(name, 'loss.png');
  assert.equal(bytes.subarray(1, 4).toString(), 'PNG');
  const plot = await lossPlot(page).locator('canvas').evaluate(({ width, height }) => ({ width, height }));
  assert.ok(bytes.readUInt32BE(16) > plot.width && bytes.readUInt32BE(20) > plot.height + 40, 'room for title and legend');
  await close();
});

test('the heat map is saved as CSV and PNG', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/numerics?statistic=amax&role=x`);
  await page.waitForSelector('.heat-cells');
  await page.waitForTimeout(300);
  const group = page.getByRole('group', { name: /^Save .* of x$/ });
  const title = (await group.getAttribute('aria-label')).replace('Save ', '');
  const lines = (await saved(page, `Save ${title} as CSV`)).bytes.toString().trimEnd().split('\r\n');
  assert.match(lines[0], /^layer,step \d+,step \d+/);
  assert.match(lines[1], /^blocks\.0\.attention\.qkv,[\d.e-]+,/);
  assert.equal(lines[1].split(',').length, lines[0].split(',').length);
  const picture = await saved(page, `Save ${title} as PNG`);
  assert.match(picture.name, /-of-x\.png$/);
  assert.ok(picture.bytes.length > 5000);
  await close();
});

test('the histogram of a site is saved as CSV and PNG', async (t) => {
  if (!dash.mock) return t.skip('needs a site of the mock');
  const site = 'blocks.0.attention.qkv/x';
  const { page, close } = await dash.open(`#/run/${dash.recorded}/numerics?statistic=amax&role=x&site=${encodeURIComponent(site)}`);
  await page.waitForSelector('.binades svg');
  await page.waitForTimeout(300);
  const group = page.getByRole('group', { name: /^Save Histogram of/ });
  const title = (await group.getAttribute('aria-label')).replace('Save ', '');
  const lines = (await saved(page, `Save ${title} as CSV`)).bytes.toString().trimEnd().split('\r\n');
  assert.equal(lines[0], 'exponent,elements');
  assert.match(lines[1], /^-?\d+,\d+$/);
  const { bytes } = await saved(page, `Save ${title} as PNG`);
  assert.equal(bytes.subarray(1, 4).toString(), 'PNG');
  await close();
});

test('the buttons can be reached by keys', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/overview`);
  await page.waitForSelector('.plot canvas');
  await page.getByRole('button', { name: 'Save Loss as CSV', exact: true }).focus();
  assert.equal((await saved(page, '', () => page.keyboard.press('Enter'))).name, 'loss.csv');
  await close();
});

test('a drag writes the range into the address, every chart follows, and a double click clears it', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/overview?smooth=0`);
  await page.waitForSelector('.plot canvas');
  await page.waitForTimeout(300);
  await drag(page, lossPlot(page), 0.25, 0.5);
  await page.waitForFunction(() => location.hash.includes('zoom='));
  const [from, to] = (await zoomIn(page)).split(',').map(Number);
  assert.ok(from > 0 && to > from);
  assert.ok((await page.getByRole('button', { name: 'Reset zoom' }).count()) > 1, 'the other charts follow');
  const steps = (await saved(page, 'Save Gradient norm as CSV')).bytes.toString().trimEnd().split('\r\n').slice(1).map((line) => Number(line.split(',')[0]));
  assert.ok(steps.length > 5 && steps.every((step) => step >= from && step <= to), 'the file has what is shown');
  assert.ok(page.url().includes('smooth=0'), 'the other settings stay');
  // Over BiDi each click is a message of its own, and on a busy machine the second comes too late.
  const plot = lossPlot(page).locator('.u-over');
  await (browserName === 'firefox' ? plot.dispatchEvent('dblclick') : plot.dblclick());
  await page.waitForFunction(() => !location.hash.includes('zoom='));
  assert.equal(await page.getByRole('button', { name: 'Reset zoom' }).count(), 0);
  await close();
});

test('a link with a zoom opens zoomed; Reset zoom clears it; nonsense is ignored', async () => {
  const { page, close } = await dash.open(`#/run/${dash.recorded}/overview?zoom=100,200`);
  await page.waitForSelector('.plot canvas');
  const shown = async () => (await saved(page, 'Save Learning rate as CSV')).bytes.toString().trimEnd().split('\r\n').slice(1).map((line) => Number(line.split(',')[0]));
  const zoomed = await shown();
  assert.ok(zoomed.length > 0 && zoomed.every((step) => step >= 100 && step <= 200));
  const picture = () => lossPlot(page).locator('canvas').evaluate((canvas) => canvas.toDataURL());
  const before = await picture();
  await page.getByRole('button', { name: 'Reset zoom' }).first().click();
  assert.equal(await zoomIn(page), null);
  await page.waitForTimeout(200);
  assert.notEqual(await picture(), before, 'the lines were drawn as the address said');
  assert.ok((await shown()).length > zoomed.length);
  await page.evaluate(() => (location.hash = location.hash + '?zoom=9,1'));
  await page.waitForTimeout(100);
  assert.equal(await page.getByRole('button', { name: 'Reset zoom' }).count(), 0);
  await close();
});
