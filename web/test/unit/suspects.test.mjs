import assert from 'node:assert/strict';
import { test } from 'node:test';
import { judgedScale } from '../../src/color_scale.ts';
import { marksOf, lowPrecisionValues, worstRows } from '../../src/views/numerics_rows.ts';
import { severityOfSites, siteOf, statisticOf } from '../../src/views/suspects.tsx';

const alert = (site, severity, seen_in, cause, step = 1) => ({ site, severity, seen_in, cause, step, rule: seen_in });
const site = (layer, rows) => ({ site: `${layer}/x`, layer, role: 'x', rows });

test('the map opens with the statistic and the role of the most severe alert', () => {
  assert.equal(statisticOf([]), null);
  const alerts = [alert('a/x', 'warning', 'headroom_log2', 0), alert('b/w', 'critical', 'nonfinite', 1)];
  assert.equal(statisticOf(alerts), 'nonfinite');
  assert.equal(siteOf(alerts), 'b/w');
  assert.equal(statisticOf([alert(null, 'critical', 'loss', 0), alert('a/w', 'warning', 'unmoved_percent', 1)]), 'unmoved_percent');
});

test('where noise is a symptom of the most severe alert, noise is shown', () => {
  const alerts = [alert('a/x', 'critical', 'headroom_log2', 0), alert('a/x', 'warning', 'sqnr_deficit_db', 0)];
  assert.equal(statisticOf(alerts), 'sqnr_deficit_db');
  alerts[1].site = 'b/x';
  assert.equal(statisticOf(alerts), 'headroom_log2', 'that of another site does not show it');
});

test('rows are marked by the most severe alert on one of their sites', () => {
  const run = { sites: ['a', 'b', 'c', 'd'].map((layer) => site(layer, 'e4m3')) };
  const header = { role: 'x', rows: [{ first: 0, count: 2 }, { first: 2, count: 2 }], row_names: ['a', 'c'], steps: [1] };
  const alerts = [alert('a/x', 'warning', 'amax', 0), alert('b/x', 'critical', 'amax', 1), alert('c/w', 'critical', 'amax', 2)];
  assert.deepEqual([...marksOf(run, { header, columns: 1 }, alerts)], [[0, 'critical']]);
  assert.equal(severityOfSites([alerts[1], alert('b/x', 'warning', 'mean', 3)]).get('b/x'), 'critical');
});

test('rows in high precision do not stretch the range of the others', () => {
  const run = { sites: [site('a', 'e4m3'), site('head', 'bf16'), site('b', 'e4m3')] };
  const header = { statistic: 'amax', role: 'x', rows: [0, 1, 2].map((first) => ({ first, count: 1 })) };
  const matrix = { header, columns: 2, rows: 3, values: Float32Array.of(1, 2, 1e9, 1e9, 3, 4) };
  const kept = lowPrecisionValues(run, matrix);
  assert.deepEqual([...kept].filter((value) => value === value), [1, 2, 3, 4]);
  assert.equal(matrix.values[2], 1e9, 'the map itself keeps its values');
  const judging = { statistic: 'amax', limits: [], forced: [], shown: undefined, others: 0 };
  assert.notDeepEqual(judgedScale('amax', kept, judging), judgedScale('amax', matrix.values, judging));
});

test('the worst are those that limits and alerts say are, on either side; the best and those in high precision are left out', () => {
  const limits = { below: [-1, -2], above: [10, 11] };
  const header = { statistic: 'headroom_log2', aggregate: 'min' };
  const matrix = { header, rows: 5, columns: 2, values: Float32Array.of(0, 0, 0, -0.5, 0, 12, -100, -100, NaN, 0) };
  const judging = {
    statistic: 'headroom_log2', limits: [limits, limits, limits, undefined, limits], forced: [{ row: 4, from: 0, to: 0 }], shown: limits, others: 0,
  };
  assert.deepEqual(worstRows(matrix, judging, 8).map(({ row, column }) => [row, column]), [[2, 1], [4, 0], [1, 1]]);
});
