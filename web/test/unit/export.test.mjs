// CSV by RFC 4180, names of files, and the zoom in the address.
import assert from 'node:assert/strict';
import { test } from 'node:test';

globalThis.window ??= { matchMedia: () => ({ matches: false, addEventListener() {} }), addEventListener() {} };
const { csvText, fileName } = await import('../../src/charts/export');
const { heatRows } = await import('../../src/charts/heat_export');
const { zoomOf } = await import('../../src/charts/zoom');
const { parse } = await import('../../src/router');

test('CSV quotes what must be quoted and ends every line with CR LF', () => {
  assert.equal(csvText([['step', 'a,b', 'say "x"', 'two\nlines'], [1, 0.5, null, -2e-7]]),
    'step,"a,b","say ""x""","two\nlines"\r\n1,0.5,,-2e-7\r\n');
});

test('text that a spreadsheet would run is marked as text; negative numbers stay numbers', () => {
  assert.equal(csvText([['=1+1', '+x', '-x', '@x', '=a,"b"', 'a=b']]), `'=1+1,'+x,'-x,'@x,"'=a,""b""",a=b\r\n`);
  assert.equal(csvText([[-1, NaN, Infinity]]), '-1,,\r\n');
});

test('a file is named after its chart', () => {
  assert.equal(fileName('Difference to <b>fp32 / seed 1</b>', 'png'), 'difference-to-b-fp32-seed-1-b.png');
  assert.equal(fileName('…', 'csv'), 'chart.csv');
});

test('a heat map has a row per layer and a column per step', () => {
  const matrix = {
    header: { steps: [10, 20], row_names: ['a', '=b'] }, rows: 2, columns: 2, values: Float32Array.from([1, NaN, 0.5, -4]),
  };
  assert.equal(csvText(heatRows(matrix)), "layer,step 10,step 20\r\na,1,\r\n'=b,0.5,-4\r\n");
});

test('a zoom in the address is two finite numbers in order, or none', () => {
  const of = (text) => zoomOf(parse(`#/run/a/overview?zoom=${text}`));
  assert.deepEqual(of('10,20.5'), [10, 20.5]);
  for (const bad of ['', '10', '20,10', '10,10', 'a,b', '1,Infinity', ',5', '1,2,3']) assert.equal(of(bad), null, bad);
});
