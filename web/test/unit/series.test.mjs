import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as s from '../../src/series.ts';

const line = (steps, of = (x) => x) => ({ step: steps, value: steps.map(of) });
const upTo = (n) => Array.from({ length: n }, (_, i) => i + 1);

test('thinning keeps the ends, every extreme of a bucket, the order and the limit', () => {
  const series = line(upTo(10000), (x) => Math.sin(x / 50) + (x === 4321 ? 100 : 0) - (x === 777 ? 100 : 0));
  const thin = s.thin(series, 400);
  assert.ok(thin.step.length <= 400);
  assert.equal(thin.step[0], 1);
  assert.equal(thin.step.at(-1), 10000);
  assert.ok(thin.step.includes(4321) && thin.step.includes(777), 'spikes survive');
  assert.deepEqual(thin.step, [...thin.step].sort((a, b) => a - b));
  thin.step.forEach((step, i) => assert.equal(thin.value[i], series.value[step - 1]));
  assert.equal(s.thin(series, 20000), series);
});

test('thinning survives gaps', () => {
  const series = line(upTo(1000), (x) => (x % 3 ? null : x));
  const thin = s.thin(series, 100);
  assert.ok(thin.value.some((value) => value !== null));
  assert.ok(s.thin(line(upTo(1000), () => null), 100).step.length > 0);
});

test('increments join to what one request would have given, also when they overlap', () => {
  const whole = line(upTo(100));
  let joined = line(upTo(40));
  joined = s.append(joined, line(upTo(70).slice(38)));
  joined = s.append(joined, line(upTo(100).slice(70)));
  assert.deepEqual(joined, whole);
  assert.deepEqual(s.append(whole, { step: [], value: [] }), whole);
});

test('a rewound run replaces what came after', () => {
  const joined = s.append(line(upTo(50)), { step: [30, 31], value: [-1, -2] });
  assert.deepEqual(joined.step.slice(-3), [29, 30, 31]);
  assert.deepEqual(joined.value.slice(-2), [-1, -2]);
});

test('a growing series is kept within twice the limit', () => {
  let all = {};
  for (let i = 0; i < 50; ++i) all = s.appendAll(all, { loss: line(upTo(100).map((x) => x + 100 * i)) }, 200);
  assert.ok(all.loss.step.length <= 500);
  assert.equal(s.lastStep(all), 5000);
});

test('smoothing leaves constants alone, stays within the range, and is the identity without a half-life', () => {
  const steps = [1, 2, 3, 10, 11, 40];
  for (const value of s.smooth(steps, steps.map(() => 5), 8)) assert.ok(Math.abs(value - 5) < 1e-12);
  const rough = [1, 9, 1, 9, 1, 9];
  assert.equal(s.smooth(steps, rough, 0), rough);
  for (const value of s.smooth(steps, rough, 4)) assert.ok(value >= 1 && value <= 9);
  assert.deepEqual(s.smooth([1, 2, 3], [1, null, 1], 4)[1], null);
});

test('after a long pause the past weighs nothing', () => {
  const [, last] = s.smooth([0, 1000], [100, 1], 1);
  assert.ok(Math.abs(last - 1) < 1e-9);
});

test('the smoothing slider begins with nothing and grows', () => {
  assert.equal(s.halfLifeOf(0, 1000), 0);
  assert.ok(s.halfLifeOf(1, 1000) > 0);
  assert.equal(s.halfLifeOf(100, 1000), 200);
  assert.ok(s.halfLifeOf(60, 1000) < s.halfLifeOf(70, 1000));
});

test('interpolation goes through the points and nowhere beyond', () => {
  const x = [0, 10, 20];
  const y = [0, 5, null];
  assert.equal(s.interpolate(x, y, 0), 0);
  assert.equal(s.interpolate(x, y, 5), 2.5);
  assert.equal(s.interpolate(x, y, 10), 5);
  assert.equal(s.interpolate(x, y, 15), null);
  assert.equal(s.interpolate(x, y, -1), null);
  assert.equal(s.interpolate(x, y, 21), null);
});

test('axes: tokens are steps times tokens, wall time starts at zero', () => {
  assert.deepEqual(s.xOf('tokens', [1, 4], 512), [512, 2048]);
  const time = { step: [1, 3], value: [1000, 1010] };
  assert.deepEqual(s.xOf('time', [1, 2, 3, 4], 1, time), [0, 5, 10, null]);
  assert.deepEqual(s.xOf('time', [1], 1, undefined), [null]);
});

test('aligned curves read back as they were: gaps stay null, absences are undefined', () => {
  const a = { x: [1, 2, 3], y: [10, null, 30] };
  const b = { x: [2, 4], y: [20, 40] };
  const { x, columns } = s.align([a, b]);
  assert.deepEqual(x, [1, 2, 3, 4]);
  assert.deepEqual(columns[0], [10, null, 30, undefined]);
  assert.deepEqual(columns[1], [undefined, 20, undefined, 40]);
});

test('stacked columns add up', () => {
  assert.deepEqual(s.stack([[1, 2], [3, null], [5, 6]]), [[1, 2], [4, 2], [9, 8]]);
});

test('what happens now and then keeps its mean per step however many steps are shown', () => {
  const evaluations = line([100, 200, 300, 400], () => 50);
  const all = upTo(400);
  const some = all.filter((x) => x % 8 === 0);
  const total = (steps) => s.atSteps(evaluations, steps).reduce((sum, value, i) => sum + value * (steps[i] - (steps[i - 1] ?? steps[i] - 1)), 0);
  assert.ok(Math.abs(total(all) - 200) < 1e-9);
  assert.ok(Math.abs(total(some) - 200) < 1e-9);
  assert.deepEqual(s.atSteps(line(upTo(10)), [1, 5, 10]), [1, 5, 10]);
});

test('the noise band is mean ± width · deviation, and nothing with one run', () => {
  const flat = (value) => ({ x: [0, 10], y: [value, value] });
  const band = s.noiseBand([flat(1), flat(2), flat(3)], [0, 5], 2);
  assert.deepEqual(band.mean, [2, 2]);
  assert.deepEqual(band.low, [0, 0]);
  assert.deepEqual(band.high, [4, 4]);
  assert.deepEqual(s.noiseBand([flat(1)], [0], 2).low, [null]);
});

test('ratios of sums', () => {
  const part = line(upTo(100), (x) => (x % 10 === 0 ? 1 : 0));
  const whole = line(upTo(100), () => 2);
  assert.equal(s.totalRatio(part, whole), 0.05);
  for (const value of s.bucketRatio(part, whole, 10).value) assert.equal(value, 0.05);
  assert.equal(s.totalRatio(undefined, whole), null);
});

test('the tail mean is over the last part of the steps', () => {
  assert.equal(s.tailMean(line(upTo(101)), 0.1), 96);
  assert.equal(s.tailMean(undefined, 0.1), null);
});
