// Bundles the page into dist/ (or the folder given as argument): index.html, app.js, app.css. The same sources give the
// same bytes: no hashes in names, no dates, no paths of the machine.
import { build } from 'esbuild';
import { copyFile, mkdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const target = path.resolve(process.argv[2] ?? path.join(here, 'dist'));

// The licenses of what is bundled ask that their text goes with it.
const bundled = ['preact', 'uplot'];
const licenses = await Promise.all(bundled.map(async (name) =>
  `${name}\n\n${(await readFile(path.join(here, 'node_modules', name, 'LICENSE'), 'utf8')).trim()}`));
const notice = `/*\nThe dashboard of quaver. It contains:\n\n${licenses.join('\n\n')}\n*/`;

await mkdir(target, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: 'src/main.tsx' },
  outdir: target,
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['es2021', 'chrome100', 'firefox100', 'safari15'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  banner: { js: notice, css: notice },
  charset: 'utf8',
  logLevel: 'warning',
});
await copyFile(path.join(here, 'src/index.html'), path.join(target, 'index.html'));
