// Where a step's time goes, what memory holds, and how hard the device works.
import { useMemo } from 'preact/hooks';
import { LineChart } from '../charts/line_chart';
import type { LineSeries } from '../charts/plot_options';
import { ShareBars } from '../charts/share_bars';
import { Card, Figure } from '../parts/controls';
import { ErrorBox, Loading } from '../parts/feedback';
import { bytes, duration, number, percent, short, words } from '../format';
import { api } from '../api';
import { useMetrics, useResource } from '../hooks';
import type { Place } from '../router';
import { atSteps, bucketRatio, curve, halfLifeOf, lastStep, lastValue, smooth, stack, tailMean, totalRatio, xOf } from '../series';
import { categoryName } from '../theme';
import type { Maybe, RankInfo, RunDetail, SeriesByName } from '../types';
import { capital, speedTitle } from '../units';
import { axisLook, CurveControls, curveViewOf, toCurve, type CurveView } from './curve_controls';

const phases = ['phase.forward_backward', 'phase.optimizer', 'phase.data', 'phase.statistics', 'phase.evaluation',
  'phase.checkpoint', 'phase.shadow'];
const device = ['power_watts', 'sm_clock_mhz', 'temperature_c', 'memory_used_bytes'];
const exchange = ['communication_seconds', 'communication_least_seconds', 'slowest_rank'];
const names = [...phases, ...device, ...exchange, 'seconds', 'statistics_seconds', 'tokens_per_second', 'time'];

export function PerformanceView({ run, place }: { run: RunDetail; place: Place }) {
  const metrics = useMetrics([run.id], names);
  const series = metrics.series[run.id];
  const ranks = useResource(`ranks ${run.id}`, (signal) => api.ranks(run.id, signal), { run: run.id, kinds: ['documents'] });
  if (!series) {
    return <div class="page">{metrics.error ? <ErrorBox error={metrics.error} /> : <Loading what="performance metrics" />}</div>;
  }
  return (
    <div class="page">
      <Headline run={run} series={series} ranks={ranks.data ?? []} />
      <CurveControls place={place} range={lastStep(series)} unit={run.unit} />
      {ranks.error && <ErrorBox error={ranks.error} />}
      <Charts run={run} series={series} ranks={ranks.data ?? []} view={curveViewOf(place)} />
    </div>
  );
}

const watts = (value: Maybe) => `${number(value, 3)} W`;
const degrees = (value: Maybe) => `${number(value, 3)} °C`;
const hundredfold = (value: Maybe): Maybe => (value === null ? null : 100 * value);

const totalOf = (memory: Record<string, number>) => Object.values(memory).reduce((sum, size) => sum + size, 0);

function Headline({ run, series, ranks }: { run: RunDetail; series: SeriesByName; ranks: RankInfo[] }) {
  const has = (name: string) => (series[name]?.step.length ?? 0) > 0;
  const memory = totalOf(run.memory);
  const slowest = lastValue(series.slowest_rank);
  return (
    <dl class="figures">
      <Figure name={speedTitle([run])} detail="latest" value={short(run.tokens_per_second ?? lastValue(series.tokens_per_second))} />
      <Figure name="Step" value={duration(tailMean(series.seconds, 0.05))} detail="mean of the last 5 %" />
      <Figure name="Cost of statistics" detail="of step time, whole run"
        value={percent(hundredfold(totalRatio(series.statistics_seconds, series.seconds)))} />
      {has('communication_seconds') && (
        <Figure name="Communication" value={duration(tailMean(series.communication_seconds, 0.05))}
          detail={`${percent(hundredfold(totalRatio(series.communication_seconds, series.seconds)))} of step time`} />
      )}
      {slowest !== null && <Figure name="Slowest rank" value={String(slowest)} detail={`latest; ${ranks[slowest]?.name ?? ''}`} />}
      <Figure name="Planned memory" value={memory > 0 ? bytes(memory) : '–'}
        detail={ranks.length > 1 ? `rank 0 of ${ranks.length}, all categories` : 'all categories'} />
      {has('memory_used_bytes') && (
        <Figure name="Memory in use" value={bytes(lastValue(series.memory_used_bytes))} detail="on the device" />
      )}
      {has('power_watts') && <Figure name="Power" value={watts(lastValue(series.power_watts))} detail="latest" />}
      {has('temperature_c') && <Figure name="Temperature" value={degrees(lastValue(series.temperature_c))} detail="latest" />}
    </dl>
  );
}

interface ChartsProps {
  run: RunDetail;
  series: SeriesByName;
  ranks: RankInfo[];
  view: CurveView;
}

function Charts({ run, series, ranks, view: asked }: ChartsProps) {
  const halfLife = halfLifeOf(asked.smoothing, lastStep(series));
  const key = JSON.stringify(asked);
  const lines = useMemo(() => {
    const one = (name: string, label: string, color: string): LineSeries[] =>
      [{ label, color, ...toCurve(series[name], asked, run.tokens_per_step, series.time, halfLife) }];
    const cost = bucketRatio(series.statistics_seconds, series.seconds, 100);
    return {
      phases: stackedPhases(series, asked, run.tokens_per_step, halfLife),
      speed: one('tokens_per_second', `${run.unit}/s`, 'c3'),
      cost: [{
        label: 'statistics', color: 'c2',
        ...toCurve({ step: cost.step, value: cost.value.map(hundredfold) }, asked, run.tokens_per_step, series.time, 0),
      }] as LineSeries[],
      communication: [...one('communication_seconds', 'the rank that waits longest', 'c1'),
        ...one('communication_least_seconds', 'the slowest rank', 'c4')],
      slowest: [{ label: 'rank', color: 'c4', ...toCurve(series.slowest_rank, asked, run.tokens_per_step, series.time, 0) }] as LineSeries[],
      power: one('power_watts', 'power', 'c1'),
      clock: one('sm_clock_mhz', 'SM clock', 'c0'),
      temperature: one('temperature_c', 'temperature', 'c4'),
      memory: one('memory_used_bytes', 'in use', 'c5'),
    };
  }, [series, key, halfLife, run.tokens_per_step]);
  const has = (name: string) => (series[name]?.step.length ?? 0) > 0;
  const common = {
    ...axisLook(asked.axis, run.unit), logX: asked.logX, logY: asked.logY, height: 170,
    syncKey: `performance ${run.id}`,
  };
  return (
    <>
      <div class="grid">
        <LineChart {...common} title="A step's time by phase" series={lines.phases} stacked zeroBased logY={false} height={260}
          formatY={duration}
          note={halfLife > 0 ? 'Smoothed: phases that occur in some steps only (evaluation, checkpoints) are spread over the steps between.' : undefined} />
      </div>
      <div class="grid charts">
        <LineChart {...common} title={`${capital(run.unit)} per second`} series={lines.speed} formatY={short} />
        <LineChart {...common} title="Cost of statistics" series={lines.cost} formatY={percent} zeroBased />
        {has('communication_seconds') && (
          <LineChart {...common} title="Communication in a step" series={lines.communication} formatY={duration} zeroBased
            note="Exchange of gradients and weights, waiting for other ranks included: the gap is what they wait for the slowest one. On GPUs it runs beside the passes." />
        )}
        {has('slowest_rank') && (
          <LineChart {...common} title="Slowest rank" series={lines.slowest} formatY={(value) => number(value, 3)} zeroBased logY={false}
            note="The one that the others waited for. Always the same one: look at that machine." />
        )}
        {ranks.length > 1 && (
          <Card title="Memory by rank">
            <ShareBars label="Memory" format={bytes} percents={false}
              parts={ranks.map((rank) => ({ name: rank.name, value: totalOf(rank.memory) }))} />
          </Card>
        )}
        <Card title={ranks.length > 1 ? 'Memory of rank 0 by category' : 'Memory by category'}>
          <ShareBars label="Memory" format={bytes}
            parts={Object.entries(run.memory).map(([name, value]) => ({ name: words(name), value }))} />
        </Card>
        {has('memory_used_bytes') && (
          <LineChart {...common} title="Memory in use" series={lines.memory} formatY={bytes} binaryTicks zeroBased />
        )}
        {has('power_watts') && <LineChart {...common} title="Power" series={lines.power} formatY={watts} zeroBased />}
        {has('sm_clock_mhz') && (
          <LineChart {...common} title="SM clock" series={lines.clock} formatY={(value) => `${number(value, 4)} MHz`} />
        )}
        {has('temperature_c') && <LineChart {...common} title="Temperature" series={lines.temperature} formatY={degrees} />}
        {!has('power_watts') && !has('sm_clock_mhz') && (
          <Card title="Device">
            <p class="quiet">Power, clocks and temperature are recorded on NVIDIA GPUs. This run had none.</p>
          </Card>
        )}
      </div>
    </>
  );
}

// The phases on top of each other at the steps of the first; the legend says each one's own time.
function stackedPhases(series: SeriesByName, view: CurveView, tokensPerStep: number, halfLife: number): LineSeries[] {
  const present = phases.filter((name) => series[name]?.value.some((value) => value !== null && value > 0));
  const steps = series[present[0] ?? '']?.step;
  if (!steps) return [];
  const x = xOf(view.axis, steps, tokensPerStep, series.time);
  const own = present.map((name) => smooth(steps, atSteps(series[name] ?? { step: [], value: [] }, steps), halfLife));
  return stack(own).map((sums, i) => ({
    label: words((present[i] ?? '').replace('phase.', '')),
    color: categoryName(i),
    ...curve(x, sums),
    shown: curve(x, own[i] ?? []).y,
  }));
}
