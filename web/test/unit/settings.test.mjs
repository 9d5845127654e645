import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rangesInWords, rangesOf } from '../../src/settings.ts';

const change = (step, key, before, after) => ({ step, key, before, after });

test('a setting that never changed is one range', () => {
  const ranges = rangesOf([change(5, 'train.seed', '1', '2')], 'precision.recipe', 'bf16');
  assert.deepEqual(ranges, [{ value: 'bf16', from: 1, to: null }]);
  assert.equal(rangesInWords(ranges), 'bf16');
});

test('each change ends a range, at the last step trained with it', () => {
  const changes = [
    change(100, 'precision.recipe', '"bf16"', '"fp8-delayed"'),
    change(120, 'train.seed', '1', '2'),
    change(1500, 'precision.recipe', '"fp8-delayed"', '"nvfp4"'),
  ];
  const ranges = rangesOf(changes, 'precision.recipe', 'nvfp4');
  assert.deepEqual(ranges, [
    { value: 'bf16', from: 1, to: 100 }, { value: 'fp8-delayed', from: 101, to: 1500 }, { value: 'nvfp4', from: 1501, to: null },
  ]);
  assert.equal(rangesInWords(ranges), 'bf16 to step 100, then fp8-delayed to step 1,500, then nvfp4');
});

test('what was changed again before a step was trained is no range', () => {
  const changes = [change(10, 'train.seed', '1', '2'), change(10, 'train.seed', '2', '3')];
  assert.deepEqual(rangesOf(changes, 'train.seed', '3'), [{ value: '1', from: 1, to: 10 }, { value: '3', from: 11, to: null }]);
});
