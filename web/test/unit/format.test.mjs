import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as format from '../../src/format.ts';

test('what is not a number is a dash, whatever the formatter', () => {
  for (const name of ['number', 'loss', 'count', 'short', 'bytes', 'duration', 'durationShort', 'share', 'percent']) {
    for (const value of [null, undefined, NaN, Infinity]) assert.equal(format[name](value), format.NONE, name);
  }
  assert.equal(format.fixed(null, 2), format.NONE);
  assert.equal(format.signed(NaN, 2), format.NONE);
});

test('numbers keep their significant digits and lose their zeros', () => {
  assert.equal(format.number(0), '0');
  assert.equal(format.number(12.34567), '12.35');
  assert.equal(format.number(-2.5), '−2.5');
  assert.equal(format.number(1000), '1000');
  assert.equal(format.number(123456), '123456');
  assert.equal(format.number(1e-5), '10⁻⁵');
  assert.equal(format.number(1.25e-7), '1.25×10⁻⁷');
  assert.equal(format.number(-3e9), '−3×10⁹');
});

test('a number read back from its text is within the digits shown', () => {
  const back = (text) => {
    const plain = text.replace('−', '-').replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]/g, (c) => '⁰¹²³⁴⁵⁶⁷⁸⁹'.includes(c) ? '⁰¹²³⁴⁵⁶⁷⁸⁹'.indexOf(c) : '-');
    const scaled = plain.match(/^(-?[\d.]+)×10(-?\d+)$/);
    if (scaled) return Number(`${scaled[1]}e${scaled[2]}`);
    return Number(plain);
  };
  for (let exponent = -12; exponent < 12; ++exponent) {
    for (const mantissa of [1.2345, -9.8765, 5.5555]) {
      const value = mantissa * 10 ** exponent;
      assert.ok(Math.abs(back(format.number(value)) / value - 1) < 6e-3, `${value} → ${format.number(value)}`);
    }
  }
});

test('units change where the next one reads better', () => {
  assert.equal(format.short(999), '999');
  assert.equal(format.short(1000), '1k');
  assert.equal(format.short(999999), '1M');
  assert.equal(format.short(477000), '477k');
  assert.equal(format.bytes(1023), '1023 B');
  assert.equal(format.bytes(1024), '1 KiB');
  assert.equal(format.bytes(1.5 * 2 ** 30), '1.5 GiB');
  assert.equal(format.duration(0.0125), '12.5 ms');
  assert.equal(format.duration(59.99), '1 min');
  assert.equal(format.duration(250), '4 min 10 s');
  assert.equal(format.duration(7500), '2 h 5 min');
  assert.equal(format.duration(3 * 86400 + 4 * 3600), '3 d 4 h');
  assert.equal(format.durationShort(5400), '1.5 h');
});

test('counts are grouped, signs are explicit', () => {
  assert.equal(format.count(1234567), '1,234,567');
  assert.equal(format.signed(0.00004, 4), '±0.0000');
  assert.equal(format.signed(-0.5, 2), '−0.50');
  assert.equal(format.signed(0.5, 2), '+0.50');
});

test('long names keep both ends', () => {
  assert.equal(format.middle('short', 10), 'short');
  const cut = format.middle('blocks.10.attention.qkv', 13);
  assert.equal(cut.length, 13);
  assert.ok(cut.startsWith('blocks') && cut.endsWith('qkv') && cut.includes('…'));
});

test('time since', () => {
  assert.equal(format.ago(100, 102), 'just now');
  assert.equal(format.ago(100, 100 + 7200), '2 h ago');
  assert.match(format.ago(0, 30 * 86400), /^\d{4}-\d\d-\d\d$/);
});
