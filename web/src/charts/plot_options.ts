// How uPlot is told to draw: axes, scales, lines, bands and marks in the theme's colors.
import uPlot from 'uplot';
import type { Maybe } from '../types';
import { color } from '../theme';

export interface LineSeries {
  label: string;
  color: string; // name of a color variable: "c0"
  x: number[];
  y: Maybe[];
  dash?: number[];
  width?: number;
  faint?: boolean; // the raw values behind a smoothed line; not in the legend
  legend?: string; // label of the legend's entry that shows and hides this one
  points?: boolean;
  axis?: 'right';
  shown?: Maybe[]; // what the legend says instead of y, for stacked lines
}

export interface Mark {
  x: number;
  color: string;
}

export interface PlotLook {
  formatX: (value: Maybe) => string;
  formatY: (value: Maybe) => string;
  formatTickX?: (value: Maybe) => string;
  formatTickY?: (value: Maybe) => string;
  binaryTicks?: boolean; // y counts bytes: ticks at powers of two
  rangeOfY?: [number, number]; // what lies outside is cut off
  secondAxis?: { format: (value: Maybe) => string };
  logX?: boolean;
  logY?: boolean;
  height?: number;
  bands?: { high: number; low: number; color: string }[]; // indices into series
  bandName?: string; // what the bands are, for the legend
  stacked?: boolean;
  markers?: Mark[];
  syncKey?: string;
  zeroBased?: boolean; // the y axis begins at 0
}

export interface PlotEvents {
  cursorMoved: (index: number | null) => void;
  rangeChosen: (range: readonly [number, number] | null) => void; // by the reader; null: all of it
  marks: () => Mark[];
}

// The value at a place, or the nearest one before it where the line has no point there.
export function readAt(column: ArrayLike<number | null | undefined> | undefined, index: number): Maybe {
  if (!column) return null;
  for (let i = index; i >= 0 && i > index - 4000; --i) {
    const value = column[i];
    if (value !== undefined) return value;
  }
  return null;
}

function translucent(name: string, alpha: number): string {
  const hex = color(name).replace('#', '');
  const value = Number.parseInt(hex, 16);
  return `rgb(${(value >> 16) & 255} ${(value >> 8) & 255} ${value & 255} / ${alpha})`;
}

const powersOfTwo = Array.from({ length: 50 }, (_, i) => Math.pow(2, i));

const font = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif';

function axisLook(): Partial<uPlot.Axis> {
  return {
    stroke: color('muted'),
    font,
    grid: { stroke: color('grid'), width: 1 },
    ticks: { stroke: color('rule'), width: 1, size: 4 },
    gap: 4,
  };
}

function axesOf(look: PlotLook): uPlot.Axis[] {
  const format = (formatter: (value: Maybe) => string) => (_: uPlot, splits: number[]) =>
    splits.map((split) => (split === null ? '' : formatter(split)));
  const width = (u: uPlot, values: string[] | null) => {
    if (!values?.length) return 40;
    u.ctx.save();
    u.ctx.font = font;
    const widest = Math.max(...values.map((value) => u.ctx.measureText(value ?? '').width));
    u.ctx.restore();
    return Math.ceil(Math.max(30, widest + 12));
  };
  const axes: uPlot.Axis[] = [
    { ...axisLook(), size: 26, space: 70, values: format(look.formatTickX ?? look.formatX) },
    { ...axisLook(), scale: 'y', size: width, space: 28, values: format(look.formatTickY ?? look.formatY),
      ...(look.binaryTicks ? { incrs: powersOfTwo } : {}),
    },
  ];
  if (look.secondAxis) {
    axes.push({
      ...axisLook(), scale: 'right', side: 1, size: width, space: 28, grid: { show: false },
      values: format(look.secondAxis.format),
    });
  }
  return axes;
}

function rangeY(look: PlotLook): uPlot.Range.Function {
  return (_, low, high) => {
    if (low === null || high === null) return look.logY ? [0.1, 1] : [0, 1];
    if (look.rangeOfY) return look.rangeOfY;
    if (look.logY) return uPlot.rangeLog(low, high, 10, false);
    if (low === high) {
      const reach = Math.abs(low) * 0.05 || 1;
      return look.zeroBased ? [0, high + reach] : [low - reach, high + reach];
    }
    const room = (high - low) * 0.06;
    return [look.zeroBased || (low >= 0 && low < room) ? Math.min(0, low) : low - room, high + room];
  };
}

function seriesOf(look: PlotLook, series: LineSeries[]): uPlot.Series[] {
  return series.map((one, i): uPlot.Series => {
    const base: uPlot.Series = {
      label: one.label,
      scale: one.axis === 'right' ? 'right' : 'y',
      stroke: one.faint ? translucent(one.color, 0.32) : color(one.color),
      width: one.width ?? (one.faint ? 1 : 1.6),
      dash: one.dash ?? [],
      points: one.points ? { show: true, size: 4, fill: color(one.color), width: 0 } : { show: pointsIfFew },
    };
    if (look.stacked) return { ...base, width: 1, ...(i === 0 ? { fill: translucent(one.color, 0.45) } : {}) };
    return base;
  });
}

// A line of one point would not show.
function pointsIfFew(u: uPlot, index: number): boolean {
  return (u.data[index] ?? []).length <= 2;
}

function bandsOf(look: PlotLook, series: LineSeries[]): uPlot.Band[] {
  if (look.stacked) {
    return series.slice(1).map((one, i) => ({ series: [i + 2, i + 1], fill: translucent(one.color, 0.45) }));
  }
  return (look.bands ?? []).map(({ high, low, color: name }) => ({
    series: [high + 1, low + 1], fill: translucent(name, 0.22),
  }));
}

function drawMarks(u: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.setLineDash([3, 3]);
  ctx.lineWidth = devicePixelRatio;
  for (const mark of marks) {
    const x = Math.round(u.valToPos(mark.x, 'x', true));
    if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
    ctx.strokeStyle = translucent(mark.color, 0.7);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

export function optionsOf(
  look: PlotLook,
  series: LineSeries[],
  size: { width: number; height: number },
  events: PlotEvents,
): uPlot.Options {
  return {
    ...size,
    padding: [8, look.secondAxis ? 4 : 22, 0, 0],
    legend: { show: false },
    scales: {
      x: { time: false, distr: look.logX ? 3 : 1 },
      y: { distr: look.logY ? 3 : 1, range: rangeY(look) },
      ...(look.secondAxis ? { right: { range: rangeY({ ...look, logY: false }) } } : {}),
    },
    axes: axesOf(look),
    series: [{}, ...seriesOf(look, series)],
    bands: bandsOf(look, series),
    cursor: {
      drag: { x: true, y: false, setScale: true },
      points: { size: 6 },
      dataIdx: (u, index, hovered) => {
        const column = u.data[index];
        for (let i = hovered; column && i >= 0; --i) if (column[i] !== undefined) return i;
        return hovered;
      },
      ...(look.syncKey ? { sync: { key: look.syncKey, scales: ['x', null] as [string, null] } } : {}),
    },
    hooks: {
      setCursor: [(u) => events.cursorMoved(u.cursor.idx ?? null)],
      // Charts that follow this one through their common key hear of it too: only the one under the pointer tells.
      setSelect: [(u) => {
        const { left, width } = u.select;
        if (width > 0 && u.over.matches(':hover')) events.rangeChosen([u.posToVal(left, 'x'), u.posToVal(left + width, 'x')]);
      }],
      ready: [(u) => u.over.addEventListener('dblclick', () => events.rangeChosen(null))],
      draw: [(u) => drawMarks(u, events.marks())],
    },
  };
}
