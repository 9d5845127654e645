// What curves are drawn against and how smoothly: kept in the address, so that a link shows the same picture.
import { Check, Segments, Slider, Toolbar } from '../parts/controls';
import { count, duration, durationShort, short } from '../format';
import { changed, go, type Place } from '../router';
import { curve, halfLifeOf, smooth, xOf, type Curve, type XAxis } from '../series';
import type { LineSeries } from '../charts/plot_options';
import type { Maybe, Series } from '../types';

export interface CurveView {
  axis: XAxis;
  smoothing: number; // 0…100
  logX: boolean;
  logY: boolean;
  fitEnd: boolean; // the y axis fits what comes after the first tenth
}

export function curveViewOf(place: Place): CurveView {
  const axis = place.query.get('x');
  const smoothing = Number(place.query.get('smooth') ?? 25);
  return {
    axis: axis === 'tokens' || axis === 'time' ? axis : 'step',
    smoothing: Number.isFinite(smoothing) ? Math.min(100, Math.max(0, smoothing)) : 25,
    logX: place.query.get('logx') === '1',
    logY: place.query.get('logy') === '1',
    fitEnd: place.query.get('fit') === 'end',
  };
}

interface CurveControlsProps {
  place: Place;
  range: number; // steps
  unit: string; // what the runs count: tokens, images
  fit?: boolean; // offer to leave the beginning out of the y axis
}

export function CurveControls({ place, range, unit, fit = false }: CurveControlsProps) {
  const view = curveViewOf(place);
  const set = (values: Record<string, string | number | null>) => go(changed(place, values), 'replace');
  const halfLife = halfLifeOf(view.smoothing, range);
  return (
    <Toolbar label="How curves are drawn">
      <Segments label="Against" value={view.axis} change={(x) => set({ x: x === 'step' ? null : x, zoom: null })} options={[
        { value: 'step', text: 'step' }, { value: 'tokens', text: unit }, { value: 'time', text: 'wall time' }]} />
      <Slider label="Smoothing" value={view.smoothing} change={(smooth) => set({ smooth })}
        say={halfLife > 0 ? `half-life ${short(Math.max(1, Math.round(halfLife)))} steps` : 'none'} />
      <Check label="log x" checked={view.logX} change={(on) => set({ logx: on ? 1 : null })} />
      <Check label="log y" checked={view.logY} change={(on) => set({ logy: on ? 1 : null })} />
      {fit && <Check label="fit the end" checked={view.fitEnd} change={(on) => set({ fit: on ? 'end' : null })} />}
    </Toolbar>
  );
}

export interface AxisLook {
  formatX: (value: Maybe) => string;
  formatTickX: (value: Maybe) => string;
  xName: string;
}

export function axisLook(axis: XAxis, unit: string): AxisLook {
  if (axis === 'tokens') return { formatX: (value) => `${short(value)} ${unit}`, formatTickX: short, xName: unit };
  if (axis === 'time') return { formatX: duration, formatTickX: durationShort, xName: 'seconds' };
  return {
    formatX: (value) => `step ${count(value)}`,
    formatTickX: (value) => (value !== null && value >= 1e5 ? short(value) : count(value)),
    xName: 'step',
  };
}

// A level that the curves can at best reach, as long as they are.
export function levelLine(label: string, level: number | undefined, curves: Curve[]): LineSeries[] {
  const ends = curves.flatMap((one) => [one.x[0], one.x[one.x.length - 1]]).filter((at): at is number => at !== undefined);
  if (level === undefined || ends.length === 0) return [];
  return [{ label, color: 'c6', dash: [6, 4], x: [Math.min(...ends), Math.max(...ends)], y: [level, level] }];
}

// A recorded series on the chosen axis, smoothed over steps. Logarithms have no place for what is not positive.
export function toCurve(series: Series | undefined, view: CurveView, tokensPerStep: number, time: Series | undefined,
  halfLife: number): Curve {
  if (!series) return { x: [], y: [] };
  const x = xOf(view.axis, series.step, tokensPerStep, time);
  const values = halfLife > 0 ? smooth(series.step, series.value, halfLife) : series.value;
  const y = view.logY ? values.map((value) => (value !== null && value > 0 ? value : null)) : values;
  const whole = curve(x, y);
  if (!view.logX) return whole;
  return curve(whole.x.map((at) => (at > 0 ? at : null)), whole.y);
}

// The range of what comes after the first tenth: a loss begins so high that its end is a flat line.
export function endRange(curves: Curve[]): [number, number] {
  const last = Math.max(...curves.map((one) => one.x[one.x.length - 1] ?? 0));
  let low = Infinity;
  let high = -Infinity;
  for (const one of curves) {
    one.y.forEach((value, i) => {
      if (value === null || (one.x[i] as number) < 0.1 * last) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    });
  }
  if (low > high) return [0, 1];
  const room = (high - low) * 0.06 || Math.abs(low) * 0.05 || 1;
  return low > 0 ? [Math.max(low - room, low / 2), high + room] : [low - room, high + room];
}
