// What the heat map's colours mean.
import { useLayoutEffect, useRef } from 'preact/hooks';
import { legendTicks, type ColourScale } from '../colour_scale';
import { number } from '../format';
import { useTheme } from '../theme';
import type { Aggregate } from '../types';
import { drawRamp } from './heat_draw';

const width = 260;

const worse: Record<Aggregate, string> = {
  max: 'higher is worse', min: 'lower is worse', mean: '', absmax: 'farther from zero is worse',
};

export function HeatLegend({ scale, unit, aggregate }: { scale: ColourScale; unit: string; aggregate: Aggregate }) {
  const theme = useTheme();
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    if (canvas.current) drawRamp(canvas.current, scale, theme.dark, width, 10);
  }, [scale, theme.version]);
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

// Labels that would touch are left out.
function apart(ticks: number[], scale: ColourScale): number[] {
  let end = -Infinity;
  return ticks.filter((tick) => {
    const x = scale.place(tick) * width;
    const half = number(tick, 2).length * 3.3;
    if (x - half < end + 4) return false;
    end = x + half;
    return true;
  });
}
