// A heat map as files: every cell as CSV, and the picture with its color scale.
import { legendTicks, type ColorScale } from '../color_scale';
import { number, words } from '../format';
import type { Matrix } from '../types';
import { downloadCsv, downloadPng, type CsvCell } from './export';
import type { Exports } from './export_menu';
import { drawHeatMap, drawRamp, type HeatLayout } from './heat_draw';

const rampWidth = 260;
const rampHeight = 10;

export function heatTitle({ header }: Matrix): string {
  return `${words(header.statistic)} of ${header.role}`;
}

// A row per layer (or several, under the name of the first), a column per step (or several, under the first).
export function heatRows({ header, rows, columns, values }: Matrix): CsvCell[][] {
  const all: CsvCell[][] = [['layer', ...header.steps.map((step) => `step ${step}`)]];
  for (let row = 0; row < rows; ++row) {
    all.push([header.row_names[row] ?? '', ...Array.from(values.subarray(row * columns, (row + 1) * columns))]);
  }
  return all;
}

export function heatExports(matrix: Matrix, scale: ColorScale, layout: HeatLayout, dark: boolean): Exports {
  const title = heatTitle(matrix);
  return {
    csv: () => downloadCsv(title, heatRows(matrix)),
    png: () => {
      const chart = document.createElement('canvas');
      drawHeatMap(chart, matrix, scale, layout, dark);
      const ramp = document.createElement('canvas');
      drawRamp(ramp, scale, dark, rampWidth, rampHeight);
      const ticks = legendTicks(scale).map((tick) => ({ at: scale.place(tick) * rampWidth, text: number(tick, 2) }));
      downloadPng({
        title, chart, xName: 'step',
        extra: { canvas: ramp, width: rampWidth, height: rampHeight, ticks: apart(ticks), text: 'hatched: not measured' },
      });
    },
  };
}

// Labels that would touch are left out.
function apart(ticks: { at: number; text: string }[]): { at: number; text: string }[] {
  let end = -Infinity;
  return ticks.filter(({ at, text }) => {
    const half = text.length * 3.8;
    if (at - half < end + 4) return false;
    end = at + half;
    return true;
  });
}
