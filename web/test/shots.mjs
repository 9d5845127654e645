// Pictures of every view, light and dark, desktop and mobile: node test/shots.mjs FOLDER [view…]
import { chromium } from 'playwright-core';
import { mkdir } from 'node:fs/promises';
import { startMock } from './mock-server.mjs';

const folder = process.argv[2] ?? '/tmp/web-shots';
const only = process.argv.slice(3);
await mkdir(folder, { recursive: true });
const mock = process.env.QUAVER_DASH_URL ? undefined : await startMock();
const base = process.env.QUAVER_DASH_URL ?? mock.url;
const run = process.env.QUAVER_DASH_RUN ?? 'fp8-s1';
const views = {
  runs: '#/', overview: `#/run/${run}/overview`, numerics: `#/run/${run}/numerics`,
  panel: `#/run/${run}/numerics?statistic=amax&role=x&site=${encodeURIComponent('blocks.12.mlp.down/x')}&step=3000`,
  precision: `#/run/${run}/precision`, performance: `#/run/${run}/performance`, alerts: `#/run/${run}/alerts`,
  compare: '#/compare?runs=bf16-s1,fp8-s1,nvfp4-s1&smooth=40', diff: '#/diff?runs=fp8-s1,nvfp4-s1',
  deep: '#/run/deep/numerics?statistic=underflow_percent&role=dy&rows=all', hostile: '#/run/hostile/overview', fresh: '#/run/fresh/overview',
};
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
for (const [size, viewport] of Object.entries({ desktop: { width: 1280, height: 720 }, mobile: { width: 390, height: 844 } })) {
  for (const colorScheme of ['light', 'dark']) {
    const page = await browser.newPage({ viewport, colorScheme });
    page.on('console', (message) => message.type() === 'error' && console.log(size, colorScheme, message.text()));
    page.on('pageerror', (error) => console.log(size, colorScheme, String(error)));
    for (const [name, hash] of Object.entries(views)) {
      if (only.length && !only.includes(name)) continue;
      await page.goto(base + hash);
      await page.waitForTimeout(900);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (wide > 0) console.log(`${name} ${size}: ${wide} px too wide`);
      await page.screenshot({ path: `${folder}/${name}-${size}-${colorScheme}.png`, fullPage: true });
    }
    await page.close();
  }
}
await browser.close();
await mock?.close();
