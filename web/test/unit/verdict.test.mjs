import assert from 'node:assert/strict';
import { test } from 'node:test';
import { badCells, badFrom, judgingOf, paintJudged, placeOf, verdictOf, watchFrom } from '../../src/verdict.ts';
import { groupsOf, linkOf, severityOf } from '../../src/views/alert_groups.ts';

const above = { above: [6, 12] };
const below = { below: [0.92, 0.9] };
const both = { below: [-1, -2], above: [10, 11] };

test('a figure is fine, to be watched or bad by its limits, on either side', () => {
  assert.deepEqual([0, 5.9, 6, 12, 12.1].map((value) => verdictOf(value, above)), ['fine', 'fine', 'watch', 'watch', 'bad']);
  assert.deepEqual([1, 0.93, 0.92, 0.9, 0.89].map((value) => verdictOf(value, below)), ['fine', 'fine', 'watch', 'watch', 'bad']);
  assert.deepEqual([0, -1.5, -3, 10.5, 12].map((value) => verdictOf(value, both)), ['fine', 'watch', 'bad', 'watch', 'bad']);
  assert.equal(verdictOf(1e9, undefined), 'fine');
});

test('the place on the ramp rises with badness and lies in the zone of the verdict', () => {
  for (const [limits, statistic, ordered] of [[above, 'sqnr_deficit_db', [0, 3, 6, 9, 12.1, 30, 60]], [below, 'shadow_cosine', [1, 0.95, 0.91, 0.5, 0]],
    [both, 'headroom_log2', [0, -0.5, -1.5, -3, -9]], [both, 'headroom_log2', [0, 5, 10.5, 12, 18]]]) {
    let before = -1;
    for (const value of ordered) {
      const place = placeOf(value, limits, statistic);
      const verdict = verdictOf(value, limits);
      assert.ok(place >= before && place <= 1, `${statistic} ${value}: ${place} after ${before}`);
      assert.equal(place >= badFrom ? 'bad' : place >= watchFrom ? 'watch' : 'fine', verdict, `${statistic} ${value}`);
      before = place;
    }
  }
});

const run = {
  sites: [{ site: 'a/x', layer: 'a', role: 'x', limits: 0 }, { site: 'b/x', layer: 'b', role: 'x', limits: 1 }, { site: 'a/w', layer: 'a', role: 'w', limits: 0 }],
  limits: [{ sqnr_deficit_db: above }, {}],
};
const matrix = {
  rows: 2, columns: 3, values: new Float32Array([0, 20, NaN, NaN, 50, 50]),
  header: {
    statistic: 'sqnr_deficit_db', role: 'x', rows: [{ first: 0, count: 1 }, { first: 1, count: 1 }], row_names: ['a', 'b'], steps: [1, 11, 21], last_step: 30,
    steps_per_column: 10, layers_per_row: 1, aggregate: 'max',
  },
};

test('cells are judged by the limits of their row; rows without are not; an alert makes its cells bad', () => {
  const judging = judgingOf(run, matrix, []);
  assert.equal(badCells(matrix, judging), 1);
  const alert = { seen_in: 'sqnr_deficit_db', site: 'a/x', step: 15, last_step: 25 };
  const alerted = judgingOf(run, matrix, [alert, { ...alert, seen_in: 'amax' }, { ...alert, site: 'none/x' }]);
  assert.deepEqual(alerted.forced, [{ row: 0, from: 1, to: 2 }]);
  assert.equal(badCells(matrix, alerted), 2);
  const table = Uint32Array.from({ length: 256 }, (_, i) => i + 1);
  const pixels = new Uint32Array(6);
  paintJudged(matrix, alerted, table, 999, pixels);
  assert.equal(pixels[0], 1);
  assert.ok(pixels[1] > badFrom * 255 && pixels[2] > badFrom * 255, 'bad, measured or not');
  assert.deepEqual([...pixels.slice(3)], [999, 999, 999]);
});

test('alerts are grouped under their cause, the most severe first, and lead to what shows them', () => {
  const one = { run: 'r', step: 50, last_step: 60, severity: 'warning', rule: 'stale_scale', site: 'a/x', seen_in: 'headroom_log2', cause: 0 };
  const alerts = [one, { ...one, rule: 'loss_spike', site: null, seen_in: 'loss', severity: 'critical', cause: 0 },
    { ...one, rule: 'unmoved_weights', site: 'b/w', seen_in: 'unmoved_percent', step: 10, cause: 2 }];
  const groups = groupsOf(alerts);
  assert.deepEqual(groups.map((group) => [group.cause.site, group.symptoms.length, severityOf(group)]), [['a/x', 1, 'critical'], ['b/w', 0, 'warning']]);
  assert.equal(linkOf(alerts[0]), '#/run/r/numerics?statistic=headroom_log2&role=x&site=a%2Fx&step=50');
  assert.equal(linkOf(alerts[1]), '#/run/r/overview');
});
