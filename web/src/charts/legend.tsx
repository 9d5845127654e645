// The names of a chart's lines with their values under the cursor, or the last ones. A click hides a line.
import type uPlot from 'uplot';
import type { Maybe } from '../types';
import { readAt, type LineSeries } from './plot_options';

interface LegendProps {
  series: LineSeries[];
  data: uPlot.AlignedData;
  cursor: number | null;
  hidden: ReadonlySet<string>;
  toggle: (label: string) => void;
  formatX: (value: Maybe) => string;
  formatOf: (series: LineSeries) => (value: Maybe) => string;
}

export function Legend({ series, data, cursor, hidden, toggle, formatX, formatOf }: LegendProps) {
  const last = data[0].length - 1;
  const index = cursor ?? last;
  return (
    <div class="legend">
      <span class="legend-x">{formatX(data[0][index] ?? null)}</span>
      {series.map((one, i) => {
        if (one.faint) return null;
        const value = one.shown ? (one.shown[index] ?? null) : readAt(data[i + 1], index);
        const key = one.legend ?? one.label;
        return (
          <button type="button" class="legend-item" key={one.label} aria-pressed={!hidden.has(key)}
            onClick={() => toggle(key)} title={hidden.has(key) ? 'Show this line' : 'Hide this line'}>
            <Swatch color={one.color} dash={one.dash} />
            <span class="legend-name">{one.label}</span>
            <b>{formatOf(one)(value)}</b>
          </button>
        );
      })}
    </div>
  );
}

export function Swatch({ color, dash }: { color: string; dash?: number[] | undefined }) {
  return (
    <svg class={`swatch ink-${color}`} width="16" height="8" aria-hidden="true">
      <line x1="0" y1="4" x2="16" y2="4" stroke="currentColor" stroke-width="2.5" stroke-dasharray={(dash ?? []).join(' ')} />
    </svg>
  );
}
