// What the heat map's colors mean.
import { useLayoutEffect, useRef } from 'preact/hooks';
import { legendTicks, type ColorScale } from '../color_scale';
import { number } from '../format';
import { useTheme } from '../theme';
import type { Aggregate } from '../types';
import { badFrom, valueAt, watchFrom, type Judging } from '../verdict';
import { drawRamp } from './heat_draw';

const width = 260;

const worse: Record<Aggregate, string> = {
  max: 'higher is worse', min: 'lower is worse', mean: '', absmax: 'farther from zero is worse',
};

export function HeatLegend({ scale, unit, aggregate }: { scale: ColorScale; unit: string; aggregate: Aggregate }) {
  const theme = useTheme();
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    if (canvas.current) drawRamp(canvas.current, scale, theme.dark, width, 10);
  }, [scale, theme.version]);
  if (scale.judging?.shown) return <VerdictLegend judging={scale.judging} unit={unit} canvas={canvas} />;
  return (
    <div class="heat-legend">
      <div class="heat-ramp">
        <canvas ref={canvas} aria-hidden="true" />
        <div class="heat-ticks">
          {apart(legendTicks(scale), scale).map((tick) => (
            <span key={tick} style={{ left: `${scale.place(tick) * width}px` }}>{number(tick, 2)}</span>
          ))}
        </div>
      </div>
      <span class="quiet">{[unit, worse[aggregate]].filter(Boolean).join(', ')}</span>
      <span class="quiet"><i class="hatched" aria-hidden="true" /> not measured</span>
    </div>
  );
}

// Fine, watch, bad, with the numbers at which each begins.
function VerdictLegend({ judging, unit, canvas }: { judging: Judging; unit: string; canvas: { current: HTMLCanvasElement | null } }) {
  const limits = judging.shown;
  if (!limits) return null;
  const bound = (place: number) => number(valueAt(place, limits, judging.statistic), 3);
  const both = limits.above && limits.below;
  const at = (place: number, text: string) => <span key={text} style={{ left: `${place * width}px` }}>{text}</span>;
  const [watch, bad] = both
    ? [`${number(limits.below?.[0], 2)}…${number(limits.above?.[0], 3)}`, `${number(limits.below?.[1], 2)}…${number(limits.above?.[1], 3)}`]
    : [bound(watchFrom), bound(badFrom)];
  return (
    <div class="heat-legend verdicts">
      <div class="heat-ramp">
        <canvas ref={canvas} aria-hidden="true" />
        <div class="heat-ticks">{at(0.22, 'fine')}{at(watchFrom + 0.1, 'watch')}{at(0.86, 'bad')}</div>
        {!both && <div class="heat-ticks">{at(0, bound(0))}{at(watchFrom, watch ?? '')}{at(badFrom, bad ?? '')}{at(1, bound(1))}</div>}
      </div>
      <span class="quiet">
        {both ? `${unit}: watch outside ${watch}, bad outside ${bad}` : unit}
        {judging.others > 0 ? ` · ${judging.others} rows have limits of their own` : ''}
      </span>
      <span class="quiet"><i class="plain-cell" aria-hidden="true" /> high precision</span>
      <span class="quiet"><i class="hatched" aria-hidden="true" /> not measured</span>
    </div>
  );
}

// Labels that would touch are left out.
function apart(ticks: number[], scale: ColorScale): number[] {
  let end = -Infinity;
  return ticks.filter((tick) => {
    const x = scale.place(tick) * width;
    const half = number(tick, 2).length * 3.3;
    if (x - half < end + 4) return false;
    end = x + half;
    return true;
  });
}
