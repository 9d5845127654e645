import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeMatrix } from '../../src/api.ts';
import { shownBinades, zonesOf } from '../../src/charts/binades.tsx';
import { backoff } from '../../src/live.ts';
import { parseTags } from '../../src/parts/tags.tsx';
import { Pump } from '../../src/pump.ts';
import { changed, href, parse } from '../../src/router.ts';
import { differenceTo, groupOf, seedBand } from '../../src/views/compare_data.ts';
import { differences } from '../../src/views/difference.tsx';
import { columnEnd, siteOfRow, sitesOfRow, worstRows } from '../../src/views/numerics_rows.ts';
import { precisionRows } from '../../src/views/precision_rows.ts';
import { cleaned, isListed, isShown } from '../../src/views/run_actions.tsx';
import { compareRuns, matchesFilter } from '../../src/views/runs_order.ts';
import { makeRuns, matrix, sitesOf } from '../mock-data.mjs';

test('an address reads back as what it was made of', () => {
  const path = ['run', 'a/b ?', 'numerics'];
  const values = { site: 'blocks.3.mlp.up/x', statistic: 'amax', odd: '&=#%' };
  const place = parse(href(path, values));
  assert.deepEqual(place.path, path);
  assert.deepEqual(Object.fromEntries(place.query), values);
  assert.equal(parse(changed(place, { site: null, role: 'w' })).query.get('site'), null);
  assert.deepEqual(parse('#/run/%E0%A4%A').path, ['run', '%E0%A4%A']);
});

function bytesOf(buffer) {
  return buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength);
}

test('numerics are decoded as they were encoded, and damage is an error', () => {
  const [run] = makeRuns();
  const wanted = { statistic: 'amax', role: 'x', from: 1, to: 1e9, columns: 60, rows: 50 };
  const whole = bytesOf(matrix(run, wanted));
  const decoded = decodeMatrix(whole);
  assert.ok(decoded.rows > 0 && decoded.rows <= 50 && decoded.columns <= 60);
  assert.equal(decoded.values.length, decoded.rows * decoded.columns);
  assert.equal(decoded.header.row_names[0], 'blocks.0.attention.qkv');
  for (const length of [0, 3, 4, 40, whole.byteLength - 4]) {
    assert.throws(() => decodeMatrix(whole.slice(0, length)), /cannot be read/);
  }
  const liar = whole.slice(0);
  new DataView(liar).setUint32(0, 0xfffffffc, true);
  assert.throws(() => decodeMatrix(liar), /cannot be read/);
});

test('rows of the map find their sites, and the worst come first', () => {
  const run = makeRuns().find((one) => one.id === 'live');
  const detail = { sites: sitesOf(run) };
  const decoded = decodeMatrix(bytesOf(matrix(run, { statistic: 'sqnr_db', role: 'dy', from: 1, to: 1e9, columns: 40, rows: 30 })));
  assert.equal(siteOfRow(detail, decoded.header, 0), 'blocks.0.attention.qkv/dy');
  assert.equal(sitesOfRow(detail, decoded.header, 0).length, decoded.header.layers_per_row);
  const worst = worstRows(decoded, { statistic: 'amax', limits: [], forced: [], shown: undefined, others: 0 }, 5);
  const lowest = Math.min(...Array.from(decoded.values).filter((value) => !Number.isNaN(value)));
  assert.equal(worst[0].value, lowest);
  assert.ok(worst[0].value <= worst[1].value);
});

test('columns end where the next begins', () => {
  const header = { steps: [10, 40, 70], steps_per_column: 30, last_step: 85 };
  assert.deepEqual([0, 1, 2].map((column) => columnEnd(header, column)), [39, 69, 85]);
});

test('the zones of a format cover the histogram without gaps', () => {
  const histogram = { counts: new Array(64).fill(0).map((_, i) => (i > 20 && i < 45 ? 5 : 0)), first_binade: -40, range: { zero_below: -12.3, subnormal_below: -8, max: 6.8 } };
  const { first, last } = shownBinades(histogram);
  assert.ok(first <= -20 && last >= 7);
  const zones = zonesOf(histogram.range, first, last);
  assert.deepEqual(zones.map((zone) => zone.zone), ['zero', 'subnormal', 'normal', 'saturated']);
  assert.equal(zones[0].from, first);
  assert.equal(zones.at(-1).to, last);
  zones.slice(1).forEach((zone, i) => assert.equal(zone.from, zones[i].to));
  assert.deepEqual(zonesOf(null, 0, 1), []);
  assert.deepEqual(zonesOf({ zero_below: -200, subnormal_below: -149, max: 128 }, -10, 10).map((zone) => zone.zone), ['normal']);
});

test('reconnecting waits longer each time, to half a minute', () => {
  assert.ok(backoff(0, 0) < backoff(1, 0));
  assert.ok(backoff(50, 1) <= 40000);
  assert.ok(backoff(0, 0) >= 500);
});

test('a pump never runs twice at once, and once more after the last request', async () => {
  let running = 0;
  let runs = 0;
  const pump = new Pump(1, async () => {
    assert.equal(++running, 1);
    await new Promise((resolve) => setTimeout(resolve, 5));
    --running;
    ++runs;
  });
  for (let i = 0; i < 20; ++i) pump.ask();
  const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  for (let i = 0; runs < 2 && i < 1000; ++i) await pause(10); // a busy machine may take its time
  await pause(60);
  assert.equal(runs, 2);
  pump.stop();
});

test('tags: trimmed, once each, within the limits', () => {
  assert.deepEqual(parseTags(' a, b ,a,,'), ['a', 'b']);
  assert.equal(parseTags(Array.from({ length: 50 }, (_, i) => `t${i}`).join(',')).length, 32);
  assert.equal(parseTags('x'.repeat(100))[0].length, 64);
});

test('only keys that differ are a difference', () => {
  assert.deepEqual(differences({ a: '1', b: '2' }, { b: '3', a: '1', c: '4' }), [
    { key: 'b', left: '2', right: '3' }, { key: 'c', left: undefined, right: '4' }]);
});

test('runs: every word must match; those without a value come last both ways', () => {
  const [a, b] = makeRuns().slice(0, 2).map((run) => ({ ...run, final_train_loss: run.id === 'live' ? null : 3 }));
  assert.ok(matchesFilter({ ...b, tags: ['paper'] }, 'PAPER fp8'));
  assert.ok(!matchesFilter(b, 'fp8 nothing'));
  for (const down of [true, false]) assert.ok(compareRuns(a, b, 'loss', down) > 0);
});

test('the difference of a run to itself is zero, and the band holds the base of a tight group', () => {
  const base = { x: [1, 2, 3], y: [3, 2, 1] };
  assert.deepEqual(differenceTo(base, base).y, [0, 0, 0]);
  assert.deepEqual(differenceTo(base, { x: [1, 3], y: [4, 2] }).y, [1, 1, 1]);
  const band = seedBand(base, [base, { x: [1, 3], y: [3.2, 1.2] }]);
  band.x.forEach((_, i) => assert.ok(band.low[i] <= 0 && band.high[i] >= 0));
});

test('a group is the runs that share it, and a run without one stands alone', () => {
  const runs = makeRuns();
  assert.equal(groupOf(runs.find((run) => run.id === 'bf16-s1'), runs).length, 3);
  assert.equal(groupOf({ ...runs[0], group: '' }, runs).length, 1);
  assert.deepEqual(groupOf(undefined, runs), []);
});

test('a site that was widened remembers the plan; one that came back does not', () => {
  const site = { site: 'a/x', layer: 'a', role: 'x', rows: 'bf16' };
  const change = (step, before, after) => ({ step, site: 'a/x', format_before: before, format_after: after });
  const cell = (changes) => precisionRows([site], changes, null)[0].cells.get('x');
  assert.equal(cell([change(5, 'e4m3', 'bf16')]).planned, 'e4m3');
  assert.equal(cell([change(9, 'bf16', 'e4m3'), change(5, 'e4m3', 'bf16')]).planned, null);
  assert.equal(cell([change(5, 'e4m3', 'e4m3')]).planned, null);
});

test('names and notes are cleaned of what the server refuses', () => {
  assert.equal(cleaned('  a\tb\u0000c\nd\u009b ', 'one'), 'a b c d');
  assert.equal(cleaned('first\r\nsecond\rthird\u001b\n', 'many'), 'first\nsecond\nthird');
  assert.equal(cleaned('ü 漢 🎵 <b>', 'one'), 'ü 漢 🎵 <b>');
});

test('a deleted run is listed among the deleted ones alone, hidden or not', () => {
  const plain = { hidden: false, deleted: null };
  const hidden = { hidden: true, deleted: null };
  const deleted = { hidden: true, deleted: 1 };
  assert.deepEqual([plain, hidden, deleted].map(isListed), [true, false, false]);
  assert.deepEqual([plain, hidden, deleted].map((run) => isShown(run, [])), [true, false, false]);
  assert.deepEqual([plain, hidden, deleted].map((run) => isShown(run, ['hidden'])), [true, true, false]);
  assert.deepEqual([plain, hidden, deleted].map((run) => isShown(run, ['deleted'])), [true, false, true]);
});
