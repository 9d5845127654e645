// Beside the curves: the choice of runs and the table of what they ended with.
import { useState } from 'preact/hooks';
import { Swatch } from '../charts/legend';
import { LineChart } from '../charts/line_chart';
import type { LineSeries, PlotLook } from '../charts/plot_options';
import { StatusBadge } from '../parts/badges';
import { Card } from '../parts/controls';
import { count, fixed, loss, number, share, signed } from '../format';
import { href } from '../router';
import { lastValue } from '../series';
import { categoryName, dashOf } from '../theme';
import type { Maybe, Run, SeriesByName } from '../types';
import { hasAccuracy, speed, speedTitle } from '../units';
import { finalMetrics } from './compare_data';
import { accuracyPercent } from './compare_groups';
import type { AxisLook } from './curve_controls';
import { matchesFilter } from './runs_order';

export function RunPicker({ runs, chosen, pick }: { runs: Run[]; chosen: string[]; pick: (ids: string[]) => void }) {
  const [filter, setFilter] = useState('');
  const toggle = (id: string) => pick(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  return (
    <details class="card picker" open={chosen.length === 0}>
      <summary>Runs <span class="quiet">{chosen.length} of {runs.length} chosen</span></summary>
      <input type="search" class="filter" placeholder="Filter" aria-label="Filter runs to choose from" value={filter}
        onInput={(event) => setFilter(event.currentTarget.value)} />
      <ul>
        {runs.filter((run) => matchesFilter(run, filter)).slice(0, 200).map((run) => (
          <li key={run.id}>
            <label class="check">
              <input type="checkbox" checked={chosen.includes(run.id)} onChange={() => toggle(run.id)} />
              <span class="picker-name">{run.name}</span> <span class="quiet">{run.recipe} · seed {run.seed}</span>
            </label>
          </li>
        ))}
      </ul>
    </details>
  );
}

interface AccuracyChartProps {
  look: AxisLook & { logX: boolean; syncKey: string; empty: string };
  series: LineSeries[];
  bands?: NonNullable<PlotLook['bands']>;
}

export function AccuracyChart({ look, series, bands }: AccuracyChartProps) {
  return (
    <LineChart {...look} title="Validation accuracy" series={series} {...(bands ? { bands } : {})} logY={false} height={240}
      formatY={(value) => share(value, 2)} formatTickY={(value) => share(value, 1)} />
  );
}

interface FinalTableProps {
  chosen: Run[];
  base: Run;
  group: Run[];
  series: Record<string, SeriesByName>;
}

export function FinalTable({ chosen, base, group, series }: FinalTableProps) {
  const from = finalMetrics(base, series[base.id]);
  const spread = deviation(group.map((run) => finalMetrics(run, series[run.id]).loss));
  const classifies = hasAccuracy(chosen);
  const difference = (value: Maybe, reference: Maybe) => (value === null || reference === null ? null : value - reference);
  return (
    <Card title="Final metrics" class="final">
      <div class="scroll-x">
        <table class="data">
          <thead>
            <tr>
              <th scope="col">Run</th><th scope="col">Status</th><th scope="col">Recipe</th><th scope="col" class="num">Seed</th>
              <th scope="col" class="num">Steps</th><th scope="col" class="num">Final training loss</th><th scope="col" class="num">Δ base</th>
              <th scope="col" class="num">Δ %</th><th scope="col" class="num">Validation loss</th><th scope="col" class="num">Δ base</th>
              {classifies && <><th scope="col" class="num">Accuracy %</th><th scope="col" class="num">Δ base</th></>}
              <th scope="col" class="num">Gradient norm</th><th scope="col" class="num">{speedTitle(chosen)}</th><th scope="col" class="num">Alerts</th>
            </tr>
          </thead>
          <tbody>
            {chosen.map((run, i) => {
              const own = finalMetrics(run, series[run.id]);
              const parted = difference(own.loss, from.loss);
              const outside = parted !== null && spread !== null && Math.abs(parted) > 2 * spread;
              return (
                <tr key={run.id} class={run.id === base.id ? 'picked' : ''}>
                  <th scope="row" class="name">
                    <Swatch color={categoryName(i)} dash={dashOf(i)} />
                    <a href={href(['run', run.id, 'overview'])}>{run.name}</a>{run.id === base.id && <span class="quiet"> base</span>}
                  </th>
                  <td><StatusBadge status={run.status} /></td>
                  <td><code>{run.recipe}</code></td>
                  <td class="num">{run.seed}</td>
                  <td class="num">{count(run.step)}</td>
                  <td class="num">{loss(own.loss)}</td>
                  <td class="num">{run.id === base.id ? '' : <>{signed(parted, 4)}{outside && <b title="farther than 2σ of the seeds"> *</b>}</>}</td>
                  <td class="num">{run.id === base.id || parted === null || !from.loss ? '' : signed((100 * parted) / from.loss, 2)}</td>
                  <td class="num">{loss(own.validation)}</td>
                  <td class="num">{run.id === base.id ? '' : signed(difference(own.validation, from.validation), 4)}</td>
                  {classifies && (
                    <>
                      <td class="num">{fixed(accuracyPercent(run), 2)}</td>
                      <td class="num">{run.id === base.id ? '' : signed(difference(accuracyPercent(run), accuracyPercent(base)), 2)}</td>
                    </>
                  )}
                  <td class="num">{number(own.gradientNorm, 3)}</td>
                  <td class="num">{speed(run.tokens_per_second ?? lastValue(series[run.id]?.tokens_per_second), run, chosen)}</td>
                  <td class="num">{count(run.alerts)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <p class="note">
        Final training loss and gradient norm: mean over the last twentieth of the run's steps. {spread !== null
          ? `σ of the base's ${group.length} seeds: ${number(spread, 3)}${from.loss ? ` (${share(spread / from.loss, 2)})` : ''}; * is farther than 2σ.` : ''}
      </p>
    </Card>
  );
}

function deviation(values: Maybe[]): Maybe {
  const known = values.filter((value): value is number => value !== null);
  if (known.length < 2) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  return Math.sqrt(known.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (known.length - 1));
}
