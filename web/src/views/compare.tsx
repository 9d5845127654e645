// Several runs over each other, and their differences to one of them beside what seeds alone make.
import { useMemo } from 'preact/hooks';
import { LineChart } from '../charts/line_chart';
import type { LineSeries } from '../charts/plot_options';
import { Check, Select } from '../parts/controls';
import { Empty, ErrorBox, Loading } from '../parts/feedback';
import { number, signed, words } from '../format';
import { useMetrics, useRuns } from '../hooks';
import { changed, go, href, type Place } from '../router';
import { curve, halfLifeOf, lastStep, xOf } from '../series';
import { categoryName, dashOf } from '../theme';
import type { Run, SeriesByName } from '../types';
import { hasAccuracy, unitsOf } from '../units';
import { differenceTo, groupOf, seedBand, smoothed } from './compare_data';
import { seedGroups, widest } from './compare_groups';
import { GroupedCurves, GroupedTable } from './compare_groups_view';
import { AccuracyChart, FinalTable, RunPicker } from './compare_parts';
import { axisLook, CurveControls, curveViewOf, endRange, toCurve, type CurveView } from './curve_controls';
import { isListed } from './run_actions';

const metricNames = ['loss', 'validation_loss', 'validation_accuracy', 'gradient_norm', 'tokens_per_second', 'learning_rate', 'saturated', 'overflows', 'skipped', 'narrow_share',
  'gradient_snr', 'shadow_cosine', 'shadow_error', 'update_ratio', 'unmoved_percent', 'max_logit', 'loss_scale', 'seconds'];
const accuracyMetric = 'validation_accuracy';
const mostRuns = 20;

export function CompareView({ place }: { place: Place }) {
  const { data: runs, error, reload } = useRuns();
  if (!runs) return error ? <ErrorBox error={error} retry={reload} /> : <Loading what="runs" />;
  const asked = (place.query.get('runs') ?? '').split(',');
  return <Comparison place={place} runs={runs.filter((run) => isListed(run) || asked.includes(run.id))} />;
}

function Comparison({ place, runs }: { place: Place; runs: Run[] }) {
  const asked = (place.query.get('runs') ?? '').split(',').filter(Boolean).slice(0, mostRuns);
  const chosen = asked.map((id) => runs.find((run) => run.id === id)).filter((run): run is Run => run !== undefined);
  const base = chosen.find((run) => run.id === place.query.get('base')) ?? widest(chosen);
  const groups = seedGroups(chosen);
  const hasSeeds = groups.some((one) => one.runs.length > 1);
  const grouped = hasSeeds && place.query.get('seeds') !== 'each';
  const baseGroup = groups.find((one) => base && one.runs.includes(base));
  const metric = place.query.get('metric') ?? 'loss';
  const group = groupOf(base, runs).slice(0, mostRuns);
  const needed = [...new Set([...chosen, ...group].map((run) => run.id))];
  const classifies = hasAccuracy(chosen);
  const wanted = useMemo(
    () => [...new Set(['loss', 'gradient_norm', metric, 'time', ...(classifies ? [accuracyMetric] : [])])], [metric, classifies]);
  const metrics = useMetrics(needed, wanted);
  const view = curveViewOf(place);
  const range = Math.max(0, ...chosen.map((run) => lastStep(metrics.series[run.id] ?? {})));
  const pick = (ids: string[]) => go(changed(place, { runs: ids.join(',') }));

  return (
    <div class="page">
      <div class="page-head">
        <h1>Compare</h1>
        {chosen.length > 0 && (
          <>
            <Select label="Base" value={base?.id ?? ''} change={(id) => go(changed(place, { base: id }), 'replace')}
              options={grouped ? groups.map((one) => ({ value: baseOption(one.runs, base), text: one.label }))
                : chosen.map((run) => ({ value: run.id, text: run.name }))} />
            {hasSeeds && <Check label="group seeds" checked={grouped} change={(on) => go(changed(place, { seeds: on ? null : 'each' }), 'replace')} />}
            <Select label="Metric" value={metric} change={(name) => go(changed(place, { metric: name }), 'replace')}
              options={metricNames.filter((name) => classifies || name !== accuracyMetric).map((name) => ({ value: name, text: words(name) }))} />
          </>
        )}
        <span class="grow" />
        {chosen.length === 2 && <a class="button" href={href(['diff'], { runs: chosen.map((run) => run.id).join(',') })}>Config difference</a>}
      </div>
      <RunPicker runs={runs} chosen={chosen.map((run) => run.id)} pick={pick} />
      {metrics.error && <ErrorBox error={metrics.error} />}
      {chosen.length === 0 || !base
        ? <Empty title="Choose runs to compare"><p>Pick them above, or on the <a href="#/">list of runs</a>.</p></Empty>
        : (
          <>
            <CurveControls place={place} range={range} unit={unitsOf(chosen)} fit />
            {grouped && baseGroup ? (
              <>
                <GroupedCurves groups={groups} base={baseGroup} metric={metric} series={metrics.series} view={view} range={range}
                  empty={metrics.loading ? 'Loading…' : `No chosen run has recorded ${words(metric)}.`} />
                <GroupedTable groups={groups} base={baseGroup} />
              </>
            ) : (
              <>
                <Curves chosen={chosen} base={base} group={group} metric={metric} series={metrics.series} view={view} range={range}
                  loading={metrics.loading} />
                <FinalTable chosen={chosen} base={base} group={group} series={metrics.series} />
              </>
            )}
          </>
        )}
    </div>
  );
}

// The base of a group is told by one of its runs: the one that the address names, else its first.
function baseOption(runs: Run[], base: Run | undefined): string {
  return (runs.find((run) => run.id === base?.id) ?? runs[0])?.id ?? '';
}

interface CurvesProps {
  chosen: Run[];
  base: Run;
  group: Run[];
  metric: string;
  series: Record<string, SeriesByName>;
  view: CurveView;
  range: number;
  loading: boolean;
}

function Curves({ chosen, base, group, metric, series, view, range, loading }: CurvesProps) {
  const halfLife = halfLifeOf(view.smoothing, range);
  const key = JSON.stringify([view, chosen.map((run) => run.id), base.id, group.map((run) => run.id), metric, halfLife]);
  const lines = useMemo(() => chosen.map((run, i): LineSeries => ({
    label: run.name,
    color: categoryName(i),
    dash: dashOf(i),
    ...toCurve(series[run.id]?.[metric], view, run.tokens_per_step, series[run.id]?.time, halfLife),
  })), [series, key]);
  const accuracies = useMemo(() => chosen.map((run, i): LineSeries => ({
    label: run.name,
    color: categoryName(i),
    dash: dashOf(i),
    points: true,
    ...toCurve(series[run.id]?.[accuracyMetric], { ...view, logY: false }, run.tokens_per_step, series[run.id]?.time, 0),
  })).filter((line) => line.x.length > 0), [series, key]);
  const parted = useMemo(() => differencesOf(chosen, base, group, metric, series, view, halfLife), [series, key]);
  const common = {
    ...axisLook(view.axis, unitsOf(chosen)), logX: view.logX, syncKey: 'compare',
    empty: loading ? 'Loading…' : `No chosen run has recorded ${words(metric)}.`,
  };
  return (
    <div class="grid">
      <LineChart {...common} title={words(metric)} series={uniqueLabels(lines)} logY={view.logY} formatY={(value) => number(value, 5)} formatTickY={(value) => number(value, 4)}
        height={300} {...(view.fitEnd ? { rangeOfY: endRange(lines) } : {})} />
      <LineChart {...common} title={`Difference to ${base.name}`} series={uniqueLabels(parted.series)} bands={parted.bands}
        formatY={(value) => (value === 0 ? '0' : signed(value, 4))}
        formatTickY={(value) => number(value, 3)} height={240} {...(view.fitEnd ? { rangeOfY: endRange(parted.series) } : {})} note={<Noise base={base} group={group} />} />
      {accuracies.length > 0 && metric !== accuracyMetric && <AccuracyChart look={common} series={uniqueLabels(accuracies)} />}
    </div>
  );
}

function Noise({ base, group }: { base: Run; group: Run[] }) {
  if (group.length < 2) {
    return (
      <>No seed-noise band: no other run differs from {base.name} in its seed alone. Train the base with two more seeds
        (<code>--train.seed=2</code>, <code>3</code>) to see which differences mean anything.</>
    );
  }
  return (
    <>Gray band: mean ± 2σ of {group.length} runs that differ from {base.name} in the seed alone
      ({group.map((run) => `seed ${run.seed}`).join(', ')}).{group.length < 3 ? ' Two runs give a poor σ; a claim needs at least three.' : ''}</>
  );
}

function differencesOf(chosen: Run[], base: Run, group: Run[], metric: string, series: Record<string, SeriesByName>, view: CurveView,
  halfLife: number): { series: LineSeries[]; bands: { high: number; low: number; color: string }[] } {
  const of = (run: Run) => smoothed(series[run.id]?.[metric], halfLife);
  const from = of(base);
  const place = (steps: number[]) => {
    const x = xOf(view.axis, steps, base.tokens_per_step, series[base.id]?.time);
    return view.logX ? x.map((at) => (at !== null && at > 0 ? at : null)) : x;
  };
  const lines = chosen.map((run, i): LineSeries => {
    const difference = differenceTo(from, of(run));
    return { label: run.name, color: categoryName(i), dash: dashOf(i), ...curve(place(difference.x), difference.y) };
  }).filter((line) => line.x.length > 0);
  if (group.length < 2 || from.x.length === 0) return { series: lines, bands: [] };
  const band = seedBand(from, group.map(of));
  const x = place(band.x);
  const edge = (label: string, values: typeof band.low): LineSeries =>
    ({ label, color: 'c6', width: 0.5, faint: true, ...curve(x, values) });
  const all = [edge('2σ above', band.high), edge('2σ below', band.low), ...lines];
  return { series: all, bands: [{ high: 0, low: 1, color: 'c6' }] };
}

// Two runs may have one name; lines are told apart by theirs.
function uniqueLabels(lines: LineSeries[]): LineSeries[] {
  const seen = new Map<string, number>();
  return lines.map((line) => {
    const times = (seen.get(line.label) ?? 0) + 1;
    seen.set(line.label, times);
    return times > 1 ? { ...line, label: `${line.label} (${times})` } : line;
  });
}
