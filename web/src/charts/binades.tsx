// Histogram of a tensor's magnitudes by binade, over the format's ranges: zero, subnormal, normal, saturated.
import { useId, useRef, useState } from 'preact/hooks';
import { useWidth } from '../hooks';
import { count, percent, short } from '../format';
import { Term } from '../parts/terms';
import type { Histogram } from '../types';
import { downloadCsv, downloadPng, drawnSvg, type CsvCell } from './export';
import { ExportMenu } from './export_menu';

const height = 190;
const top = 22;
const bottom = 22;

type Zone = 'zero' | 'subnormal' | 'normal' | 'saturated';
const zoneNames: Record<Zone, string> = {
  zero: 'underflow', subnormal: 'subnormal', normal: 'normal', saturated: 'saturated',
};

export interface Zoned {
  zone: Zone;
  from: number; // log2 of the magnitude
  to: number;
}

// The zones that lie within [first, last), as far as the format has them.
export function zonesOf(range: Histogram['range'], first: number, last: number): Zoned[] {
  if (!range) return [];
  const clamp = (value: number | null, fallback: number) => Math.min(last, Math.max(first, value ?? fallback));
  const zero = clamp(range.zero_below, first);
  const subnormal = Math.max(zero, clamp(range.subnormal_below, zero));
  const most = Math.max(subnormal, clamp(range.max, last));
  const all: Zoned[] = [
    { zone: 'zero', from: first, to: zero },
    { zone: 'subnormal', from: zero, to: subnormal },
    { zone: 'normal', from: subnormal, to: most },
    { zone: 'saturated', from: most, to: last },
  ];
  return all.filter(({ from, to }) => to > from);
}

// The binades worth showing: those that occur and the format's ends, with room on both sides.
export function shownBinades(histogram: Histogram): { first: number; last: number } {
  const { counts, first_binade: start, range } = histogram;
  const used = counts.map((count, i) => (count > 0 ? start + i : null)).filter((e): e is number => e !== null);
  const ends = [range?.zero_below, range?.max].filter((e): e is number => typeof e === 'number');
  const all = [...used, ...ends.map(Math.floor)];
  if (all.length === 0) return { first: start, last: start + counts.length };
  return {
    first: Math.max(start, Math.min(...all) - 2),
    last: Math.min(start + counts.length, Math.max(...all) + 3),
  };
}

export function Binades({ histogram }: { histogram: Histogram }) {
  const [holder, width] = useWidth<HTMLDivElement>();
  const [log, setLog] = useState(true);
  const [hover, setHover] = useState<number | null>(null);
  const id = useId();
  const svg = useRef<SVGSVGElement>(null);
  const total = histogram.counts.reduce((sum, count) => sum + count, 0);
  const { first, last } = shownBinades(histogram);
  const zones = zonesOf(histogram.range, first, last);
  const plotWidth = Math.max(100, width - 4);
  const x = (exponent: number) => 2 + ((exponent - first) / (last - first)) * plotWidth;
  const bars = histogram.counts
    .map((count, i) => ({ exponent: histogram.first_binade + i, share: total > 0 ? count / total : 0 }))
    .filter(({ exponent }) => exponent >= first && exponent < last);
  const most = Math.max(...bars.map((bar) => bar.share), 1e-9);
  const least = 1e-7;
  const heightOf = (share: number) => {
    if (share <= 0) return 0;
    const part = log ? Math.max(0.02, Math.log(share / least) / Math.log(most / least)) : share / most;
    return part * (height - top - bottom);
  };
  const zoneAt = (exponent: number) => zones.find(({ from, to }) => exponent + 0.5 >= from && exponent + 0.5 < to)?.zone;
  const shareIn = (zone: Zone) => bars.filter((bar) => zoneAt(bar.exponent) === zone).reduce((sum, bar) => sum + bar.share, 0);
  const every = Math.max(1, Math.ceil((last - first) / Math.max(3, Math.floor(plotWidth / 44))));
  const pointed = hover === null ? undefined : bars.find((bar) => bar.exponent === hover);
  const title = `Histogram of ${histogram.site} at step ${histogram.step}`;
  const summary = zones.map(({ zone }) => `${percent(100 * shareIn(zone))} ${zoneNames[zone]}`).join(', ');

  return (
    <div class="binades" ref={holder}>
      <div class="binades-head">
        <span class="quiet tabular">
          {pointed ? `2^${pointed.exponent} … 2^${pointed.exponent + 1}: ${percent(100 * pointed.share)} of non-zero elements`
            : summary || 'This format has no limits within these binades.'}
        </span>
        <span class="row">
          <label class="check"><input type="checkbox" checked={log} onChange={() => setLog(!log)} /> log</label>
          <ExportMenu title={title} exports={() => ({
            csv: () => downloadCsv(title, binadeRows(histogram, first, last)),
            png: () => void (svg.current && drawnSvg(svg.current).then((chart) => downloadPng({
              title, chart, xName: 'magnitude', notes: [summary].filter(Boolean),
            }))),
          })} />
        </span>
      </div>
      <svg ref={svg} width={Math.max(120, width)} height={height} role="img" aria-labelledby={id} onPointerLeave={() => setHover(null)}>
        <title id={id}>{`Histogram of binades at step ${histogram.step}: ${summary}`}</title>
        {zones.map(({ zone, from, to }) => (
          <g key={zone} class={`zone zone-${zone}`}>
            <rect x={x(from)} y={0} width={x(to) - x(from)} height={height - bottom} />
            {x(to) - x(from) > 58 && <text x={(x(from) + x(to)) / 2} y={13}>{zoneNames[zone]}</text>}
          </g>
        ))}
        {bars.map((bar) => (
          <g key={bar.exponent} onPointerEnter={() => setHover(bar.exponent)}>
            <rect class="bar-hit" x={x(bar.exponent)} y={0} width={plotWidth / (last - first)} height={height - bottom} />
            <rect class={`binade binade-${zoneAt(bar.exponent) ?? 'normal'}`} x={x(bar.exponent) + 0.5}
              width={Math.max(1, plotWidth / (last - first) - 1)} y={height - bottom - heightOf(bar.share)}
              height={heightOf(bar.share)} />
          </g>
        ))}
        <line class="axis" x1={0} x2={width} y1={height - bottom + 0.5} y2={height - bottom + 0.5} />
        {bars.filter((bar) => (bar.exponent - first) % every === 0 && x(bar.exponent) > 14).map((bar) => (
          <text key={bar.exponent} class="tick" x={x(bar.exponent)} y={height - 6}>{`2${superscript(bar.exponent)}`}</text>
        ))}
      </svg>
      <p class="quiet">
        {total === 0 ? 'No element was counted.' : `${short(total)} non-zero elements at step ${count(histogram.step)}`}; one bar per <Term name="binade" />
      </p>
    </div>
  );
}

export function binadeRows({ counts, first_binade: start }: Histogram, first: number, last: number): CsvCell[][] {
  const shown = counts.map((count, i) => [start + i, count]).filter(([exponent = 0]) => exponent >= first && exponent < last);
  return [['exponent', 'elements'], ...shown];
}

function superscript(value: number): string {
  return String(value).replace('-', '⁻').replace(/\d/g, (digit) => '⁰¹²³⁴⁵⁶⁷⁸⁹'[Number(digit)] ?? digit);
}
