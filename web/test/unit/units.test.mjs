import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasAccuracy, speed, speedTitle, unitsOf } from '../../src/units.ts';
import { axisLook, levelLine } from '../../src/views/curve_controls.tsx';

const text = { unit: 'tokens' };
const images = { unit: 'images' };

test('runs that count the same need its name once', () => {
  assert.equal(speedTitle([text, text]), 'Tokens/s');
  assert.equal(speedTitle([images]), 'Images/s');
  assert.equal(speedTitle([]), 'Tokens/s');
  assert.equal(speed(12300, images, [images]), '12.3k');
  assert.equal(unitsOf([images]), 'images');
});

test('runs that count different things each say what', () => {
  assert.equal(speedTitle([text, images]), 'Speed');
  assert.equal(speed(12300, images, [text, images]), '12.3k images/s');
  assert.equal(speed(null, images, [text, images]), '–');
  assert.equal(unitsOf([text, images]), 'tokens or images');
});

test('one accuracy is enough for a column', () => {
  assert.equal(hasAccuracy([{ validation_accuracy: null }]), false);
  assert.equal(hasAccuracy([{ validation_accuracy: null }, { validation_accuracy: 0 }]), true);
});

test('an axis of tokens is one of images for a classifier', () => {
  const look = axisLook('tokens', 'images');
  assert.equal(look.xName, 'images');
  assert.equal(look.formatX(6400), '6.4k images');
  assert.equal(axisLook('step', 'images').formatX(12), 'step 12');
});

test('a level is drawn as far as the curves go', () => {
  const curves = [{ x: [5, 10], y: [1, 2] }, { x: [2, 7], y: [1, 2] }, { x: [], y: [] }];
  const [line] = levelLine('best possible', 0.5, curves);
  assert.deepEqual([line.x, line.y], [[2, 10], [0.5, 0.5]]);
  assert.deepEqual(levelLine('best possible', undefined, curves), []);
  assert.deepEqual(levelLine('best possible', 0.5, []), []);
});
