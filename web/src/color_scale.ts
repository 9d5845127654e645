// From a statistic's value to a color: which transform suits the statistic, over which range, on which ramp.
import type { Matrix } from './types';
import { paintForced, paintJudged, type Judging } from './verdict';

export type Transform = 'linear' | 'log' | 'percent' | 'count' | 'signed';
export type RampName = 'viridis' | 'ember' | 'diverging' | 'verdict';

export interface ScaleKind {
  transform: Transform;
  ramp: RampName;
}

// log: magnitudes that span decades. percent and count: logarithmic above a floor, zero its own color at the low end.
// signed: logarithmic both ways from zero, on a diverging ramp.
const kinds: Record<string, ScaleKind> = {
  scale: { transform: 'log', ramp: 'viridis' },
  amax: { transform: 'log', ramp: 'viridis' },
  min_nonzero: { transform: 'log', ramp: 'viridis' },
  mean: { transform: 'signed', ramp: 'diverging' },
  std: { transform: 'log', ramp: 'viridis' },
  rms: { transform: 'log', ramp: 'viridis' },
  kurtosis: { transform: 'log', ramp: 'viridis' },
  underflow_percent: { transform: 'percent', ramp: 'ember' },
  saturated_percent: { transform: 'percent', ramp: 'ember' },
  unmoved_percent: { transform: 'percent', ramp: 'ember' },
  nonfinite: { transform: 'count', ramp: 'ember' },
  sqnr_db: { transform: 'linear', ramp: 'viridis' },
  headroom_log2: { transform: 'signed', ramp: 'diverging' },
  gradient_snr: { transform: 'log', ramp: 'viridis' },
  update_ratio: { transform: 'log', ramp: 'viridis' },
  shadow_cosine: { transform: 'linear', ramp: 'viridis' },
  shadow_error: { transform: 'log', ramp: 'viridis' },
};

export function kindOf(statistic: string): ScaleKind {
  return kinds[statistic] ?? { transform: 'linear', ramp: 'viridis' };
}

export interface Domain {
  low: number;
  high: number;
}

export interface ColorScale extends ScaleKind {
  domain: Domain; // in the statistic's own units
  judging?: Judging | undefined; // colored by limits instead, where there are any
  place(value: number): number; // 0…1, clamped
  value(place: number): number; // the inverse
}

const percentFloor = 1e-3;

// The range of the finite values. One outlier must not wash out the rest, so a linear scale leaves out the outermost
// half percent; logarithmic ones have room.
export function domainOf(values: Float32Array, transform: Transform): Domain {
  const positive = transform === 'log';
  let low = Infinity;
  let high = -Infinity;
  for (let i = 0; i < values.length; ++i) {
    const value = values[i] as number;
    if (value - value !== 0 || (positive && value <= 0)) continue; // x − x is 0 for finite numbers alone
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return transform === 'log' ? { low: 0.1, high: 1 } : { low: 0, high: 1 };
  if (transform === 'signed') {
    const reach = Math.max(Math.abs(low), Math.abs(high)) || 1;
    return { low: -reach, high: reach };
  }
  if (transform === 'percent') return { low: 0, high: Math.max(high, 0.01) };
  if (transform === 'count') return { low: 0, high: Math.max(high, 10) };
  if (transform === 'linear') return trimmedRange(values, low, high);
  return low === high ? { low: low / 2, high: high * 2 } : { low, high };
}

function trimmedRange(values: Float32Array, low: number, high: number): Domain {
  if (low === high) return { low: low - 0.5, high: high + 0.5 };
  const bins = new Uint32Array(512);
  const scale = 511.999 / (high - low);
  let total = 0;
  for (let i = 0; i < values.length; ++i) {
    const value = values[i] as number;
    if (!Number.isFinite(value)) continue;
    const bin = ((value - low) * scale) | 0;
    bins[bin] = (bins[bin] as number) + 1;
    ++total;
  }
  const skip = total * 0.005;
  let first = 0;
  for (let seen = bins[0] as number; seen <= skip && first < 511; seen += bins[first] as number) ++first;
  let last = 511;
  for (let seen = bins[511] as number; seen <= skip && last > first; seen += bins[last] as number) --last;
  return { low: low + first / scale, high: low + (last + 1) / scale };
}

// By the limits of the rows where they have any; the range of the values else.
export function judgedScale(statistic: string, values: Float32Array, judging: Judging): ColorScale {
  const kind = kindOf(statistic);
  const scale = scaleOf(kind, domainOf(values, kind.transform));
  return judging.shown ? { ...scale, ramp: 'verdict', judging } : { ...scale, judging };
}

export function scaleOf(kind: ScaleKind, domain: Domain): ColorScale {
  const { forward, backward } = transformOf(kind.transform, domain);
  const from = forward(domain.low);
  const span = forward(domain.high) - from || 1;
  return {
    ...kind,
    domain,
    place: (value) => Math.min(1, Math.max(0, (forward(value) - from) / span)),
    value: (place) => backward(from + place * span),
  };
}

interface Mapping {
  forward: (value: number) => number;
  backward: (place: number) => number;
}

function transformOf(transform: Transform, domain: Domain): Mapping {
  switch (transform) {
    case 'linear':
      return { forward: (value) => value, backward: (place) => place };
    case 'log':
      return {
        forward: (value) => Math.log2(value > domain.low ? value : domain.low),
        backward: (place) => Math.pow(2, place),
      };
    case 'percent':
      return aboveFloor(percentFloor);
    case 'count':
      return aboveFloor(1);
    case 'signed':
      return bothWays(domain.high / 256);
  }
}

function aboveFloor(floor: number): Mapping {
  return {
    forward: (value) => Math.log2(1 + Math.max(0, value) / floor),
    backward: (place) => floor * (Math.pow(2, place) - 1),
  };
}

function bothWays(linear: number): Mapping {
  return {
    forward: (value) => Math.sign(value) * Math.log2(1 + Math.abs(value) / linear),
    backward: (place) => Math.sign(place) * linear * (Math.pow(2, Math.abs(place)) - 1),
  };
}

// Values worth a tick on the legend, few and round.
export function legendTicks(scale: ColorScale): number[] {
  const { low, high } = scale.domain;
  switch (scale.transform) {
    case 'linear': {
      const step = roundStep((high - low) / 4);
      const ticks: number[] = [];
      for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) {
        ticks.push(Number(tick.toPrecision(12)));
      }
      return ticks;
    }
    case 'log':
      return decades(low, high);
    case 'percent':
      return [0, ...decades(Math.max(percentFloor * 10, high / 1e4), high)];
    case 'count':
      return [0, ...decades(1, high)];
    case 'signed': {
      const far = roundDown(high);
      return [-far, roundDown(-far / 16), 0, roundDown(far / 16), far];
    }
  }
}

export function roundStep(size: number): number {
  const unit = Math.pow(10, Math.floor(Math.log10(size)));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * unit).find((step) => step >= size * 0.999) ?? 10 * unit;
}

function roundDown(value: number): number {
  if (value === 0) return 0;
  const unit = Math.pow(10, Math.floor(Math.log10(Math.abs(value))));
  const factor = [5, 2, 1].find((one) => one * unit <= Math.abs(value) * 1.0001) ?? 1;
  return Math.sign(value) * factor * unit;
}

function decades(low: number, high: number): number[] {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) return [low, Math.sqrt(low * high), high];
  const every = Math.max(1, Math.ceil((last - first) / 5));
  const ticks: number[] = [];
  for (let exponent = first; exponent <= last; exponent += every) ticks.push(Number(`1e${exponent}`));
  return ticks;
}

// Colors at even distances; between them straight lines. Lightness rises throughout, so that order survives any kind of
// color vision and a print without color.
const stops: Record<RampName, string[]> = {
  viridis: ['440154', '482878', '3e4989', '31688e', '26828e', '1f9e89', '35b779', '6ece58', 'b5de2b', 'fde725'],
  ember: ['0b1a3a', '1d2f63', '3d3f86', '6b4690', '9b4c8a', 'c85676', 'e8715a', 'f79a4b', 'fcc85b', 'fdf4a3'],
  // Fine up to the middle, then to be watched, then bad: two steps that no eye misses.
  verdict: ['12395b', '1c4c74', '2a608b', '3d759e', '568bb0', 'f2c14e', 'f0b23c', 'e8503a', 'd92b2b', 'c2002f', 'a3003a'],
  diverging: ['00509e', '2f7fc4', '76ade0', 'b9d6ef', 'f1f1ee', 'f6d3ac', 'eaa05a', 'cf6a1c', '983f00'],
};
const darkMiddle = ['4aa3ff', '3a82cf', '2d5f93', '28425f', '2b2f34', '5a4229', '93602a', 'd0822f', 'ffab52'];

function channels(hex: string): [number, number, number] {
  const value = Number.parseInt(hex, 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

export const rampSize = 256;

// Packed as ImageData's bytes read by a little-endian machine: 0xAABBGGRR.
export function ramp(name: RampName, dark: boolean): Uint32Array {
  const chosen = name === 'diverging' && dark ? darkMiddle : stops[name];
  const colors = chosen.map(channels);
  const table = new Uint32Array(rampSize);
  for (let i = 0; i < rampSize; ++i) {
    const at = (i / (rampSize - 1)) * (colors.length - 1);
    // The verdicts' zones meet in a step, not in a blend.
    const left = Math.min(colors.length - 2, Math.floor(at));
    const low = colors[left] as [number, number, number];
    const high = colors[left + 1] as [number, number, number];
    const mix = (channel: 0 | 1 | 2) => Math.round(low[channel] + (name === 'verdict' && (left === 4 || left === 6) ? 0 : (high[channel] - low[channel]) * (at - left)));
    table[i] = ((255 << 24) | (mix(2) << 16) | (mix(1) << 8) | mix(0)) >>> 0;
  }
  return table;
}

export function cssColor(packed: number): string {
  return `rgb(${packed & 255} ${(packed >> 8) & 255} ${(packed >> 16) & 255})`;
}

// A pixel per cell; what was not measured stays transparent, so that the hatching behind shows. Logarithmic scales look
// the color up by the upper half of the number's bits, 128 to an octave, which is finer than the ramp; a linear scale may
// be narrower than that and is computed.
export function paint(matrix: Matrix, scale: ColorScale, table: Uint32Array, pixels: Uint32Array): void {
  const { judging } = scale;
  if (judging?.shown) return paintJudged(matrix, judging, table, plainCell, pixels);
  if (scale.transform === 'linear') paintLinear(matrix.values, scale.domain, table, pixels);
  else paintByBits(matrix.values, colorsByBits(scale, table), pixels);
  if (judging) paintForced(matrix, judging.forced, judging, ramp('verdict', false), pixels);
}

const plainCell = 0xff8f8a85; // of rows in high precision: gray

function paintLinear(values: Float32Array, { low, high }: Domain, table: Uint32Array, pixels: Uint32Array): void {
  const last = rampSize - 1;
  const factor = last / (high - low);
  for (let i = 0; i < values.length; ++i) {
    const value = values[i] as number;
    const at = Math.min(last, Math.max(0, (value - low) * factor));
    pixels[i] = value === value ? (table[(at + 0.5) | 0] as number) : 0;
  }
}

function colorsByBits(scale: ColorScale, table: Uint32Array): Uint32Array {
  const colors = new Uint32Array(65536);
  const bits = new Uint32Array(1);
  const asFloat = new Float32Array(bits.buffer);
  for (let i = 0; i < colors.length; ++i) {
    const infinite = (i & 0x7fff) === 0x7f80;
    bits[0] = ((i << 16) | (infinite || (i & 0x7fff) === 0 ? 0 : 0x8000)) >>> 0; // the middle of those that share these bits
    const value = asFloat[0] as number;
    colors[i] = value === value ? (table[(scale.place(value) * (rampSize - 1) + 0.5) | 0] as number) : 0;
  }
  return colors;
}

function paintByBits(values: Float32Array, colors: Uint32Array, pixels: Uint32Array): void {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  for (let i = 0; i < bits.length; ++i) pixels[i] = colors[(bits[i] as number) >>> 16] as number;
}
