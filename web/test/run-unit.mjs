// The tests of the pure parts: bundled for node, then run by its own test runner.
import { build } from 'esbuild';
import { spawnSync } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.join(path.dirname(fileURLToPath(import.meta.url)), 'unit');
const target = await mkdtemp(path.join(os.tmpdir(), 'quaver-web-'));
const tests = (await readdir(here)).filter((name) => name.endsWith('.test.mjs'));
await build({
  entryPoints: tests.map((name) => path.join(here, name)),
  outdir: target, bundle: true, platform: 'node', format: 'esm', outExtension: { '.js': '.mjs' }, jsx: 'automatic', jsxImportSource: 'preact',
  logLevel: 'warning',
});
const files = tests.map((name) => path.join(target, name));
const { status } = spawnSync(process.execPath, ['--test', ...files], { stdio: 'inherit' });
await rm(target, { recursive: true });
process.exit(status ?? 1);
