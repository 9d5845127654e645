// Curves as columns of numbers: joining increments, thinning, smoothing, changing the x axis, lining several up.
import type { Maybe, Series, SeriesByName } from './types';

// Appends what came later. Steps that the increment repeats (a run that was rewound) replace what was there.
export function append(series: Series, more: Series): Series {
  const first = more.step[0];
  if (first === undefined) return series;
  const keep = lowerBound(series.step, first);
  return {
    step: series.step.slice(0, keep).concat(more.step),
    value: series.value.slice(0, keep).concat(more.value),
  };
}

export function appendAll(all: SeriesByName, more: SeriesByName, limit: number): SeriesByName {
  const joined: SeriesByName = { ...all };
  for (const [name, series] of Object.entries(more)) {
    const whole = append(joined[name] ?? { step: [], value: [] }, series);
    joined[name] = whole.step.length > 2 * limit ? thin(whole, limit) : whole;
  }
  return joined;
}

export function lastStep(all: SeriesByName): number {
  return Object.values(all).reduce((last, { step }) => Math.max(last, step[step.length - 1] ?? 0), 0);
}

// Index of the first element that is not below `value`.
export function lowerBound(sorted: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if ((sorted[mid] as number) < value) low = mid + 1;
    else high = mid;
  }
  return low;
}

// At most `points` rows: of each bucket the first, smallest, largest and last, so that no spike is lost.
export function thin(series: Series, points: number): Series {
  const size = series.step.length;
  if (size <= points) return series;
  const buckets = Math.max(1, Math.floor(points / 4));
  const step: number[] = [];
  const value: Maybe[] = [];
  for (let bucket = 0; bucket < buckets; ++bucket) {
    const begin = Math.floor((bucket * size) / buckets);
    const end = Math.floor(((bucket + 1) * size) / buckets);
    for (const index of keptOf(series.value, begin, end)) {
      step.push(series.step[index] as number);
      value.push(series.value[index] as Maybe);
    }
  }
  return { step, value };
}

function keptOf(values: Maybe[], begin: number, end: number): number[] {
  let low = begin;
  let high = begin;
  for (let i = begin; i < end; ++i) {
    const value = values[i] as Maybe;
    if (value === null) continue;
    const lowest = values[low] as Maybe;
    const highest = values[high] as Maybe;
    if (lowest === null || value < lowest) low = i;
    if (highest === null || value > highest) high = i;
  }
  return [...new Set([begin, low, high, end - 1])].sort((a, b) => a - b);
}

// Exponential mean whose weight halves every `halfLife` units of x: right for rows that are not evenly spaced. The start
// is not pulled toward zero. Gaps stay gaps.
export function smooth(x: number[], values: Maybe[], halfLife: number): Maybe[] {
  if (!(halfLife > 0)) return values;
  let sum = 0;
  let weight = 0;
  let before = x[0] ?? 0;
  return values.map((value, i) => {
    if (value === null) return null;
    const at = x[i] as number;
    const keep = Math.pow(0.5, Math.max(0, at - before) / halfLife);
    before = at;
    sum = keep * sum + value;
    weight = keep * weight + 1;
    return sum / weight;
  });
}

// The slider's position 0…100 as a half-life: nothing at 0, a fifth of the range at the end, fine at the beginning.
export function halfLifeOf(position: number, range: number): number {
  if (position <= 0 || range <= 0) return 0;
  return Math.max(0.5, 0.2 * range * Math.pow(position / 100, 3));
}

// Value at any x by straight lines between the known ones; null outside and beside gaps.
export function interpolate(x: number[], values: Maybe[], at: number): Maybe {
  const size = x.length;
  if (size === 0 || at < (x[0] as number) || at > (x[size - 1] as number)) return null;
  const right = lowerBound(x, at);
  const high = values[right] as Maybe;
  if (x[right] === at || right === 0) return high;
  const low = values[right - 1] as Maybe;
  if (low === null || high === null) return null;
  const from = x[right - 1] as number;
  return low + ((high - low) * (at - from)) / ((x[right] as number) - from);
}

export type XAxis = 'step' | 'tokens' | 'time';

// Where steps lie on the chosen axis. Wall time comes from the run's own record of when each step ended, in seconds since
// the first of them; a step whose time is not known has none.
export function xOf(axis: XAxis, steps: number[], tokensPerStep: number, time: Series | undefined): Maybe[] {
  if (axis === 'step') return steps;
  if (axis === 'tokens') return steps.map((step) => step * tokensPerStep);
  if (!time || time.step.length === 0) return steps.map(() => null);
  const first = time.value.find((value) => value !== null) ?? 0;
  return steps.map((step) => {
    const at = interpolate(time.step, time.value, step);
    return at === null ? null : at - first;
  });
}

export interface Curve {
  x: number[];
  y: Maybe[];
}

// Rows without an x are dropped.
export function curve(x: Maybe[], y: Maybe[]): Curve {
  const kept: Curve = { x: [], y: [] };
  for (let i = 0; i < x.length; ++i) {
    const at = x[i] as Maybe;
    if (at === null) continue;
    kept.x.push(at);
    kept.y.push(y[i] ?? null);
  }
  return kept;
}

export type Column = (number | null | undefined)[];

// One x axis for several curves. Null stays a gap; undefined says that the curve has no point there and goes on.
export function align(curves: Curve[]): { x: number[]; columns: Column[] } {
  const first = curves[0];
  if (first && curves.every((other) => sameNumbers(other.x, first.x))) {
    return { x: first.x, columns: curves.map((one) => one.y) };
  }
  const all = new Set<number>();
  for (const one of curves) for (const at of one.x) all.add(at);
  const x = Float64Array.from(all).sort();
  const place = new Map<number, number>();
  x.forEach((at, index) => place.set(at, index));
  const columns = curves.map((one) => {
    const column: Column = new Array<undefined>(x.length).fill(undefined);
    one.x.forEach((at, i) => {
      column[place.get(at) as number] = one.y[i] as Maybe;
    });
    return column;
  });
  return { x: Array.from(x), columns };
}

function sameNumbers(a: number[], b: number[]): boolean {
  return a === b || (a.length === b.length && a.every((value, i) => value === b[i]));
}

// A series at other steps. One with a value at most steps is read off by straight lines. One that is only now and then
// more than zero (evaluations, checkpoints) is spread: its sum between two steps over their distance, so that the mean
// per step stays right however many steps were left out.
export function atSteps(series: Series, steps: number[]): Maybe[] {
  const busy = series.step.map((step, i) => ({ step, value: series.value[i] ?? 0 })).filter((row) => row.value > 0);
  const range = (series.step[series.step.length - 1] ?? 0) - (series.step[0] ?? 0);
  const dense = busy.length >= 0.5 * Math.min(steps.length, range + 1);
  if (dense) return steps.map((step) => interpolate(series.step, series.value, step));
  const sums: number[] = steps.map(() => 0);
  for (const row of busy) {
    const at = Math.min(steps.length - 1, lowerBound(steps, row.step));
    sums[at] = (sums[at] ?? 0) + row.value;
  }
  return sums.map((sum, i) => sum / Math.max(1, i > 0 ? (steps[i] as number) - (steps[i - 1] as number) : 1));
}

// Each column on top of those before it; what is not known adds nothing.
export function stack(columns: Maybe[][]): number[][] {
  let below: number[] = (columns[0] ?? []).map(() => 0);
  return columns.map((column) => {
    below = below.map((sum, i) => sum + (column[i] ?? 0));
    return below;
  });
}

export interface Band {
  low: Maybe[];
  high: Maybe[];
  mean: Maybe[];
}

// Mean ± width · deviation (n − 1) over curves at the given places; null where fewer than two reach.
export function noiseBand(curves: Curve[], x: number[], width: number): Band {
  const band: Band = { low: [], high: [], mean: [] };
  for (const at of x) {
    const values = curves.map((one) => interpolate(one.x, one.y, at)).filter((value): value is number => value !== null);
    if (values.length < 2) {
      band.low.push(null);
      band.high.push(null);
      band.mean.push(null);
      continue;
    }
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1);
    const reach = width * Math.sqrt(variance);
    band.low.push(mean - reach);
    band.high.push(mean + reach);
    band.mean.push(mean);
  }
  return band;
}

export function lastValue(series: Series | undefined): Maybe {
  if (!series) return null;
  for (let i = series.value.length - 1; i >= 0; --i) {
    const value = series.value[i];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}

// Mean over the last part of the steps: a single step's training loss says little.
export function tailMean(series: Series | undefined, part: number): Maybe {
  if (!series || series.step.length === 0) return null;
  const last = series.step[series.step.length - 1] as number;
  const from = lowerBound(series.step, last - part * (last - (series.step[0] as number)));
  const values = series.value.slice(from).filter((value): value is number => value !== null);
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

// Sum of one series over the sum of another; where the part has no figure it counts as nothing.
export function totalRatio(part: Series | undefined, whole: Series | undefined): Maybe {
  return bucketRatio(part, whole, 1).value[0] ?? null;
}

// The same by buckets of equally many rows: what comes every tenth step does not flicker.
export function bucketRatio(part: Series | undefined, whole: Series | undefined, buckets: number): Series {
  if (!part?.step.length) return { step: [], value: [] };
  const known = new Map(part.step.map((step, i) => [step, part.value[i] ?? null]));
  const rows = (whole?.step ?? []).flatMap((step, i) => {
    const over = whole?.value[i] ?? null;
    return over !== null && over > 0 ? [{ step, value: known.get(step) ?? 0, over }] : [];
  });
  const size = Math.max(buckets === 1 ? 1 : 10, Math.ceil(rows.length / buckets));
  const ratio: Series = { step: [], value: [] };
  for (let begin = 0; begin < rows.length; begin += size) {
    const bucket = rows.slice(begin, begin + size);
    ratio.step.push((bucket[bucket.length - 1] as { step: number }).step);
    ratio.value.push(bucket.reduce((sum, row) => sum + row.value, 0) / bucket.reduce((sum, row) => sum + row.over, 0));
  }
  return ratio;
}
