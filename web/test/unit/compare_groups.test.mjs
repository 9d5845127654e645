// Seeds taken together, against numbers computed by hand: the same as tests/cli/comparison_test.cpp has.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gapOf, meanBand, meanOver, pairedDifferences, seedGroups, widest } from '../../src/views/compare_groups.ts';

const near = (value, expected) => assert.ok(Math.abs(value - expected) < 1e-9, `${value} is not ${expected}`);
const run = (recipe, seed, validation_loss, more = {}) => ({
  id: `${recipe}-${seed}`, name: `${recipe} seed ${seed}`, recipe, group: recipe, seed, status: 'finished', final_train_loss: 9, validation_loss,
  tokens_per_second: 1, ...more,
});
const threeSeeds = () => [run('fp8-delayed', 3, 3.6), run('fp8-delayed', 1, 2.1), run('fp8-delayed', 2, 2.7),
  run('fp32', 1, 2.0), run('fp32', 2, 2.5), run('fp32', 3, 3.0)];

test('the deviation is that of a sample', () => {
  const found = meanOver([2, 4, 4, 4, 5, 5, 7, 9, null]);
  assert.equal(found.mean, 5);
  near(found.deviation, 2.1380899352993952);
  assert.equal(found.count, 8);
  assert.deepEqual(meanOver([3]), { mean: 3, deviation: null, count: 1 });
  assert.equal(meanOver([null]), null);
});

test('gaps are taken seed by seed', () => {
  const [narrow, base] = seedGroups(threeSeeds());
  assert.deepEqual(narrow.runs.map((one) => one.seed), [1, 2, 3]);
  assert.equal(narrow.label, 'fp8-delayed');
  const gaps = narrow.counted.map((one) => gapOf(one, base, 'validation_loss'));
  [5, 8, 20].forEach((gap, i) => near(gaps[i], gap));
  near(meanOver(gaps).mean, 11);
  near(meanOver(gaps).deviation, 7.9372539331937717);
  near(meanOver(narrow.counted.map((one) => one.validation_loss)).deviation, 0.7549834435270750);
});

test('a run that failed or has no loss is listed and not averaged', () => {
  const runs = threeSeeds();
  runs[0].status = 'failed';
  runs[3].validation_loss = null;
  const [narrow, base] = seedGroups(runs);
  assert.equal(narrow.runs.length, 3);
  assert.deepEqual(narrow.counted.map((one) => one.seed), [1, 2]);
  assert.equal(gapOf(narrow.runs[2], base, 'validation_loss'), null);
  assert.equal(gapOf(narrow.runs[0], base, 'validation_loss'), null, 'the base has no seed 1');
  near(gapOf(narrow.runs[1], base, 'validation_loss'), 8);
});

test('runs without a group stand alone, groups of one recipe keep their names', () => {
  const groups = seedGroups([run('bf16', 1, 2, { group: '' }), run('bf16', 2, 2, { group: '' }), run('bf16', 1, 2, { group: 'a', name: 'x' }), run('bf16', 2, 2, { group: 'a' })]);
  assert.deepEqual(groups.map((one) => [one.label, one.runs.length]), [['bf16 seed 1', 1], ['bf16 seed 2', 1], ['x', 2]]);
});

test('the widest recipe is the base, the first of equals', () => {
  assert.equal(widest(threeSeeds()).id, 'fp32-1');
  assert.equal(widest([run('mxfp8', 1, 2), run('bf16', 1, 2), run('fp16', 1, 2)]).recipe, 'fp16');
  assert.equal(widest([run('mxfp8', 1, 2), run('nvfp4', 1, 2)]).recipe, 'mxfp8');
  assert.equal(widest([]), undefined);
});

test('the band is where all curves are', () => {
  const band = meanBand([{ x: [1, 2, 3], y: [1, 1, 1] }, { x: [1, 2], y: [3, 3] }]);
  assert.deepEqual(band.x, [1, 2]);
  assert.deepEqual(band.mean, [2, 2]);
  near(band.high[0], 2 + Math.SQRT2);
  near(band.low[1], 2 - Math.SQRT2);
});

test('differences are to the run of the same seed', () => {
  const curves = { 'fp32-1': 3, 'fp32-2': 7, 'bf16-2': 8.5, 'bf16-1': 3.5 };
  const [base, other] = seedGroups([run('fp32', 1, 2), run('fp32', 2, 2), run('bf16', 2, 2), run('bf16', 1, 2)]);
  const found = meanBand(pairedDifferences(other, base, (one) => ({ x: [10], y: [curves[one.id]] })));
  assert.deepEqual(found.mean, [1]);
  near(found.high[0] - 1, Math.sqrt(0.5));
});
