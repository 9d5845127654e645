// Fine, watch, or bad: by the limits of the run's alerts, so that a color means the same in every run and picture. Where
// an alert held, its site is bad whatever the value alone would say.
import type { Alert, Limits, Matrix, RunDetail } from './types';

export type Verdict = 'fine' | 'watch' | 'bad';

export function verdictOf(value: number, limits: Limits | undefined): Verdict {
  if (!limits) return 'fine';
  if ((limits.above && value > limits.above[1]) || (limits.below && value < limits.below[1])) return 'bad';
  if ((limits.above && value >= limits.above[0]) || (limits.below && value <= limits.below[0])) return 'watch';
  return 'fine';
}

// Where the zones begin on the ramp.
export const watchFrom = 0.5;
export const badFrom = 0.7;

// How far beyond its limit a value can be, or is distinguished.
const farthest: Record<string, number> = {
  underflow_percent: 100, saturated_percent: 100, unmoved_percent: 100, sqnr_deficit_db: 40, nonfinite: 1e6, shadow_cosine: 0,
};

// 0: the best value; 1: the worst that is distinguished.
export function placeOf(value: number, limits: Limits, statistic: string): number {
  const sides: number[] = [];
  if (limits.above) sides.push(side(value, limits.above, 0, farthest[statistic]));
  if (limits.below) sides.push(side(-value, [-limits.below[0], -limits.below[1]], limits.above ? 0 : -1, -(farthest[statistic] ?? NaN)));
  return Math.max(0, ...sides);
}

function side(value: number, [watch, bad]: [number, number], best: number, far: number | undefined): number {
  const end = far !== undefined && far > bad ? far : bad + 8;
  const part = (from: number, to: number) => Math.min(1, Math.max(0, (value - from) / (to - from || 1)));
  if (value > bad) {
    const beyond = end > 1000 * Math.abs(bad) ? Math.log(value / bad) / Math.log(end / bad) : part(bad, end);
    return badFrom + (1 - badFrom) * Math.min(1, beyond);
  }
  if (value >= watch && bad > watch) return watchFrom + 0.15 * part(watch, bad);
  return 0.45 * part(best, watch);
}

// The value at a place of the ramp, on the side that has a limit above; for the legend.
export function valueAt(place: number, limits: Limits, statistic: string): number {
  const [watch, bad] = limits.above ?? [-(limits.below?.[0] ?? 0), -(limits.below?.[1] ?? 0)];
  const sign = limits.above ? 1 : -1;
  const far = sign * (farthest[statistic] ?? NaN);
  const end = far > bad ? far : bad + 8;
  if (place >= badFrom) return sign * (bad + ((place - badFrom) / (1 - badFrom)) * (end - bad));
  if (place >= watchFrom) return sign * watch;
  return limits.above ? 0 : 1;
}

export interface Forced {
  row: number;
  from: number; // columns
  to: number;
}

export interface Judging {
  statistic: string;
  limits: (Limits | undefined)[]; // by row
  forced: Forced[];
  shown: Limits | undefined; // those of most rows
  others: number; // rows with other limits
}

// By rows of the map: the limits of the first of a row's sites that has any, and where alerts on this statistic held.
export function judgingOf(run: RunDetail, matrix: Matrix, alerts: Alert[]): Judging {
  const { header } = matrix;
  const sites = run.sites.filter((one) => one.role === header.role);
  const limitsOf = (index: number) => run.limits?.[sites[index]?.limits ?? -1]?.[header.statistic];
  const limits = header.rows.map(({ first, count }) => {
    for (let i = first; i < first + count; ++i) {
      const found = limitsOf(i);
      if (found) return found;
    }
    return undefined;
  });
  const forced = alerts
    .filter((alert) => alert.seen_in === header.statistic && alert.site)
    .flatMap((alert) => forcedBy(alert, sites.findIndex((one) => one.site === alert.site), matrix));
  const counts = new Map<string, number>();
  for (const one of limits) if (one) counts.set(JSON.stringify(one), (counts.get(JSON.stringify(one)) ?? 0) + 1);
  const most = [...counts].sort((a, b) => b[1] - a[1])[0];
  return {
    statistic: header.statistic, limits, forced, shown: most ? (JSON.parse(most[0]) as Limits) : undefined,
    others: [...counts.values()].reduce((sum, one) => sum + one, 0) - (most?.[1] ?? 0),
  };
}

function forcedBy(alert: Alert, index: number, { header, columns }: Matrix): Forced[] {
  const row = header.rows.findIndex((one) => index >= one.first && index < one.first + one.count);
  if (index < 0 || row < 0 || columns === 0) return [];
  // A column holds from its first step up to the next one's; the first also what came before.
  const columnOf = (step: number) => {
    let column = header.steps.findIndex((first) => first > step);
    column = column < 0 ? columns - 1 : column - 1;
    return Math.max(0, column);
  };
  const end = header.last_step ?? Infinity;
  if (alert.step > end || alert.last_step < (header.steps[0] ?? 0) - header.steps_per_column) return [];
  return [{ row, from: columnOf(alert.step), to: columnOf(alert.last_step) }];
}

// Pixels of a map: by the limits of each row; gray where a row has none.
export function paintJudged(matrix: Pick<Matrix, 'values' | 'rows' | 'columns'>, judging: Judging, table: Uint32Array, plain: number,
  pixels: Uint32Array): void {
  const { values, rows, columns } = matrix;
  const last = table.length - 1;
  for (let row = 0; row < rows; ++row) {
    const limits = judging.limits[row];
    for (let i = row * columns; i < (row + 1) * columns; ++i) {
      const value = values[i] as number;
      pixels[i] = !limits ? plain : value !== value ? 0 : (table[(placeOf(value, limits, judging.statistic) * last + 0.5) | 0] as number);
    }
  }
  paintForced(matrix, judging.forced, judging, table, pixels);
}

export function paintForced({ values, columns }: Pick<Matrix, 'values' | 'columns'>, forced: Forced[], judging: Judging, table: Uint32Array,
  pixels: Uint32Array): void {
  const last = table.length - 1;
  for (const { row, from, to } of forced) {
    const limits = judging.limits[row];
    for (let column = from; column <= to; ++column) {
      const value = values[row * columns + column] as number;
      const place = limits && value === value ? placeOf(value, limits, judging.statistic) : badFrom;
      pixels[row * columns + column] = table[(Math.max(badFrom + 0.05, place) * last + 0.5) | 0] as number;
    }
  }
}

// How many cells of the map are bad, forced ones among them.
export function badCells(matrix: Matrix, judging: Judging): number {
  const bad = new Set<number>();
  for (let i = 0; i < matrix.values.length; ++i) {
    const value = matrix.values[i] as number;
    if (value === value && verdictOf(value, judging.limits[Math.floor(i / matrix.columns)]) === 'bad') bad.add(i);
  }
  for (const { row, from, to } of judging.forced) for (let column = from; column <= to; ++column) bad.add(row * matrix.columns + column);
  return bad.size;
}
