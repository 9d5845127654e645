// How long the page takes from the click to the picture, on the store of a large model (bench_store --keep=yes):
//   QUAVER_DASH_URL=http://127.0.0.1:8265/ [QUAVER_BROWSER=firefox] node test/draw-time.mjs RUN
import { browserName, startBrowser } from './browser.mjs';

const run = process.argv[2] ?? 'bench';
const dash = await startBrowser();
const { page, close } = await dash.open(`#/run/${run}/overview`, { viewport: { width: 1400, height: 1000 } });
await page.waitForSelector('h1, h2');

// In the page's own clock: setting the address is the click; the cells are painted in the frame after the one in which
// their table of contents appears.
const draw = (hash, drawn) => page.evaluate(([to, selector]) => new Promise((resolve) => {
  const start = performance.now();
  location.hash = to;
  const painted = () => requestAnimationFrame(() => resolve(performance.now() - start));
  const look = () => requestAnimationFrame(document.querySelector(selector) ? painted : look);
  look();
}), [hash, drawn]);

const map = (statistic, role) => draw(`#/run/${run}/numerics?statistic=${statistic}&role=${role}`, `[data-map="${statistic} ${role}"][data-bad-cells]`);
const times = { 'numerics, as it opens': await draw(`#/run/${run}/numerics`, '[data-map][data-bad-cells]') };
for (const statistic of ['sqnr_deficit_db', 'underflow_percent', 'amax', 'saturated_percent']) {
  for (const role of ['x', 'w', 'dy']) times[`${statistic} of ${role}`] = await map(statistic, role);
}
times['a site, with its histogram and history'] = await draw(`#/run/${run}/numerics?role=dy&site=${encodeURIComponent('blocks.500.mlp.up/dy')}`, '.panel .u-over');
times['precision map'] = await draw(`#/run/${run}/precision`, '.precision-grid');
for (const [what, ms] of Object.entries(times)) console.log(`${ms.toFixed(0).padStart(6)} ms  ${what}`);
console.log(`${browserName}: slowest ${Math.max(...Object.values(times)).toFixed(0)} ms`);
await close();
await dash.stop();
