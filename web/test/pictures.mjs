// The pictures of README and docs (scripts/pictures): node test/pictures.mjs FOLDER
// QUAVER_DASH_URL and QUAVER_PLANTED as in browser.mjs and e2e/faults.test.mjs.
import { mkdir } from 'node:fs/promises';
import { startBrowser } from './browser.mjs';

const folder = process.argv[2];
await mkdir(folder, { recursive: true });
const planted = JSON.parse(process.env.QUAVER_PLANTED);
const dash = await startBrowser();
const id = (name) => dash.runs.find((run) => run.name === name).id;
const compared = dash.runs.filter((run) => !(run.name in planted)).map((run) => run.id);
const site = encodeURIComponent(planted.saturated);
const views = {
  overview: `#/run/${id('spiking')}/overview`,
  numerics: `#/run/${id('saturated')}/numerics`,
  alerts: `#/run/${id('saturated')}/alerts`,
  precision: `#/run/${id('saturated')}/precision`,
  compare: `#/compare?runs=${compared.join()}&smooth=10`,
};
const windows = { '': { width: 1400, height: 1000 }, '-800': { width: 800, height: 1000 } };
for (const [suffix, viewport] of Object.entries(windows)) {
  for (const colorScheme of ['light', 'dark']) {
    for (const [name, hash] of Object.entries(views)) {
      // Where there is room for it, with the panel of the site beside the map.
      const place = name === 'numerics' && suffix === '' ? `${hash}?site=${site}&step=100` : hash;
      const { page, close } = await dash.open(place, { viewport, colorScheme });
      await page.waitForSelector('canvas, table, .alert');
      await page.waitForTimeout(1500);
      const end = await page.evaluate(() => document.querySelector('footer')?.getBoundingClientRect().bottom ?? Infinity);
      await page.screenshot({
        path: `${folder}/${name}${suffix}${colorScheme === 'dark' ? '-dark' : ''}.png`,
        clip: { x: 0, y: 0, width: viewport.width, height: Math.min(viewport.height, Math.ceil(end)) },
      });
      await close();
    }
  }
}
await dash.stop();
