import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as c from '../../src/color_scale.ts';

const statistics = ['scale', 'amax', 'min_nonzero', 'mean', 'std', 'rms', 'kurtosis', 'underflow_percent', 'saturated_percent', 'nonfinite',
  'sqnr_db', 'headroom_log2', 'gradient_snr', 'update_ratio', 'unmoved_percent', 'shadow_cosine', 'shadow_error', 'something_new'];
const samples = Float32Array.from([0.001, 0.5, 3, 80, NaN, Infinity, 0, -2, 40]);

test('every scale puts its ends at 0 and 1, is monotonic and has an inverse', () => {
  for (const name of statistics) {
    const kind = c.kindOf(name);
    const scale = c.scaleOf(kind, c.domainOf(samples, kind.transform));
    const { low, high } = scale.domain;
    assert.ok(Math.abs(scale.place(low)) < 1e-9, name);
    assert.ok(Math.abs(scale.place(high) - 1) < 1e-9, name);
    assert.equal(scale.place(Infinity), 1);
    let before = -1;
    for (let i = 0; i <= 50; ++i) {
      const value = low + ((high - low) * i) / 50;
      const at = scale.place(value);
      assert.ok(at >= before && at >= 0 && at <= 1, `${name} at ${value}`);
      assert.ok(Math.abs(scale.value(at) - value) <= 1e-6 * (high - low), `${name} back from ${value}`);
      before = at;
    }
  }
});

test('signed statistics put zero in the middle', () => {
  const scale = c.scaleOf(c.kindOf('mean'), c.domainOf(samples, 'signed'));
  assert.equal(scale.place(0), 0.5);
  assert.ok(Math.abs(scale.place(1) + scale.place(-1) - 1) < 1e-12);
});

test('nothing measured, or always the same, still gives a scale', () => {
  for (const values of [[], [NaN, NaN], [0, 0], [7, 7], [-3, -3]]) {
    for (const name of statistics) {
      const kind = c.kindOf(name);
      const domain = c.domainOf(Float32Array.from(values), kind.transform);
      assert.ok(domain.high > domain.low, `${name} of ${values}`);
      for (const tick of c.legendTicks(c.scaleOf(kind, domain))) assert.ok(Number.isFinite(tick), name);
    }
  }
});

test('one outlier does not wash out a linear scale', () => {
  const values = Float32Array.from({ length: 10000 }, (_, i) => (i === 5 ? -1000 : 20 + (i % 10)));
  const { low } = c.domainOf(values, 'linear');
  assert.ok(low > 0);
});

test('ticks lie within the legend', () => {
  for (const name of statistics) {
    const kind = c.kindOf(name);
    const scale = c.scaleOf(kind, c.domainOf(samples, kind.transform));
    const ticks = c.legendTicks(scale);
    assert.ok(ticks.length >= 2 && ticks.length <= 9, `${name}: ${ticks}`);
    for (const tick of ticks) assert.ok(tick >= scale.domain.low - 1e-9 && tick <= scale.domain.high * 1.001, `${name}: ${tick}`);
  }
});

test('sequential ramps grow lighter all the way', () => {
  for (const name of ['viridis', 'ember']) {
    const light = Array.from(c.ramp(name, false), (p) => 0.2126 * (p & 255) + 0.7152 * ((p >> 8) & 255) + 0.0722 * ((p >> 16) & 255));
    for (let i = 8; i < light.length; ++i) assert.ok(light[i] > light[i - 8], `${name} at ${i}`);
  }
});

test('cells that were not measured stay transparent, others are opaque', () => {
  const values = Float32Array.from([1, NaN, 100]);
  const scale = c.scaleOf(c.kindOf('amax'), c.domainOf(values, 'log'));
  const pixels = new Uint32Array(3);
  const table = c.ramp('viridis', false);
  c.paint({ values }, scale, table, pixels);
  assert.equal(pixels[0], table[0]);
  assert.equal(pixels[1], 0);
  assert.equal(pixels[2], table[c.rampSize - 1]);
});
