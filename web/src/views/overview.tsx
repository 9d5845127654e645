// A run at a glance: how far, how well, how fast, and what happened.
import { useMemo } from 'preact/hooks';
import { api } from '../api';
import { LineChart } from '../charts/line_chart';
import type { LineSeries, Mark } from '../charts/plot_options';
import { ShareBars } from '../charts/share_bars';
import { formatColor, isLowPrecision } from '../parts/badges';
import { Card, Figure } from '../parts/controls';
import { ErrorBox } from '../parts/feedback';
import { Samples } from '../parts/samples';
import { Term } from '../parts/terms';
import { count, date, duration, loss, number, plain, share, short } from '../format';
import { useMetrics, useResource } from '../hooks';
import { href, type Place } from '../router';
import { halfLifeOf, lastStep, lastValue, xOf } from '../series';
import { rangesInWords, rangesOf } from '../settings';
import type { RunDetail, RunEvent, SeriesByName } from '../types';
import { capital, speedTitle } from '../units';
import { axisLook, CurveControls, curveViewOf, endRange, levelLine, toCurve, type CurveView } from './curve_controls';

const names = ['loss', 'validation_loss', 'validation_accuracy', 'learning_rate', 'gradient_norm', 'tokens_per_second', 'time', 'loss_scale', 'max_logit',
  'saturated', 'overflows', 'skipped'];

export function OverviewView({ run, place }: { run: RunDetail; place: Place }) {
  const metrics = useMetrics([run.id], names);
  const events = useResource(`events ${run.id}`, (signal) => api.events(run.id, signal), { run: run.id, kinds: ['events', 'status'] });
  const series = metrics.series[run.id] ?? {};
  const view = curveViewOf(place);
  const range = lastStep(series);
  return (
    <div class="page">
      <Headline run={run} series={series} />
      <CurveControls place={place} range={range} unit={run.unit} fit />
      {metrics.error && <ErrorBox error={metrics.error} />}
      <Curves run={run} series={series} view={view} events={events.data ?? []} loading={metrics.loading} />
      <div class="grid two">
        <Card title="Matrix products by format"><Shares run={run} /></Card>
        <Samples run={run.id} />
        <Card title="Events"><Events events={events.data ?? []} /></Card>
        <Card title="Config and environment"><Settings run={run} /></Card>
      </div>
    </div>
  );
}

function lowPrecisionShare(shares: Record<string, number>): number {
  return Object.entries(shares).reduce((sum, [format, part]) => sum + (isLowPrecision(format) ? part : 0), 0);
}

function Headline({ run, series }: { run: RunDetail; series: SeriesByName }) {
  const part = run.steps > 0 ? Math.min(1, run.step / run.steps) : 0;
  const speed = run.tokens_per_second ?? lastValue(series.tokens_per_second);
  return (
    <dl class="figures">
      <div class="figure wide">
        <dt>Progress</dt>
        <dd>
          <strong>{share(part)}</strong>
          <span>{count(run.step)} of {count(run.steps)} steps</span>
          <progress value={part} max={1} aria-label="Share of planned steps done" />
        </dd>
      </div>
      {run.status === 'running'
        ? <Figure name="Time left" value={duration(run.eta_seconds)} detail={`started ${date(run.started).slice(5, 16)}`} />
        : <Figure name="Took" value={duration(run.updated - run.started)} detail={`ended ${date(run.updated).slice(5, 16)}`} />}
      <Figure name={run.status === 'running' ? 'Training loss' : 'Final training loss'} value={loss(run.final_train_loss)}
        detail="mean over the last 1/20 of the steps" />
      {run.validation_accuracy === null
        ? <Figure name="Validation loss" value={loss(run.validation_loss)} detail={lossDetail(run)} />
        : <Figure name="Val. accuracy" value={share(run.validation_accuracy, 2)} detail={`val. loss ${loss(run.validation_loss)}`} />}
      <Figure name={speedTitle([run])} value={short(speed)} detail={`${short(run.step * run.tokens_per_step)} ${run.unit} so far`} />
      <Figure name="Low precision" value={share(lowPrecisionShare(run.shares))} detail="of FLOPs in ≤ 8 bits" />
      <Figure name="Alerts" value={run.alerts === 0 ? '0' : <a href={href(['run', run.id, 'alerts'])}>{count(run.alerts)}</a>}
        detail={run.alerts > 0 ? `${count(run.critical_alerts)} critical` : happened(run) ? 'no rule raised one' : 'none raised'} />
      <Figure name="Saturated" value={short(run.totals?.saturated ?? 0)} detail={<>elements; {count(run.totals?.overflows ?? 0)} <Term name="overflow">overflows</Term></>} />
      <Figure name="Skipped steps" value={count(run.totals?.skipped ?? 0)} detail="gradients not finite" />
    </dl>
  );
}

// The perplexity says something of tokens alone.
function lossDetail(run: RunDetail): string {
  if (run.validation_loss === null) return 'not evaluated yet';
  return run.unit === 'tokens' ? `perplexity ${number(Math.exp(run.validation_loss), 3)}` : 'nats per image';
}

function happened(run: RunDetail): boolean {
  return (run.totals?.saturated ?? 0) > 0 || (run.totals?.overflows ?? 0) > 0 || (run.totals?.skipped ?? 0) > 0;
}

interface CurvesProps {
  run: RunDetail;
  series: SeriesByName;
  view: CurveView;
  events: RunEvent[];
  loading: boolean;
}

function Curves({ run, series, view, events, loading }: CurvesProps) {
  const halfLife = halfLifeOf(view.smoothing, lastStep(series));
  const key = JSON.stringify(view);
  const has = (name: string) => (series[name]?.step.length ?? 0) > 0;
  const lines = useMemo(() => {
    const at = (name: string, half: number) => toCurve(series[name], view, run.tokens_per_step, series.time, half);
    // Smoothed, with the raw values faint behind; raw where nothing is smoothed.
    const both = (name: string, label: string, color: string): LineSeries[] => {
      const smoothed: LineSeries = { label, color, ...at(name, halfLife) };
      return halfLife > 0 ? [{ label: `${label} raw`, color, faint: true, legend: label, ...at(name, 0) }, smoothed] : [smoothed];
    };
    const few = (series.validation_loss?.step.length ?? 0) < 200;
    const evaluated: LineSeries = { label: 'validation', color: 'c1', points: few, ...at('validation_loss', 0) };
    const accuracy: LineSeries = { label: 'validation accuracy', color: 'c1', points: few, ...at('validation_accuracy', 0) };
    const losses = [...both('loss', 'training', 'c0'), evaluated];
    return {
      trained: losses,
      loss: [...losses, ...levelLine('best possible', run.best?.loss, losses)],
      accuracy: [accuracy, ...levelLine('best possible', run.best?.accuracy, [accuracy])],
      norm: both('gradient_norm', 'gradient norm', 'c2'),
      rate: [{ label: 'learning rate', color: 'c4', ...at('learning_rate', 0) }] as LineSeries[],
      speed: both('tokens_per_second', `${run.unit}/s`, 'c3'),
      scale: [{ label: 'loss scale', color: 'c5', ...at('loss_scale', 0) }] as LineSeries[],
      logit: both('max_logit', 'largest logit', 'c1'),
      counts: [{ label: 'saturated elements', color: 'c3', ...at('saturated', 0) }] as LineSeries[],
      overflows: [
        { label: 'sites that overflowed', color: 'c1', ...at('overflows', 0) },
        ...(has('skipped') ? [{ label: 'skipped', color: 'c4', points: true, ...at('skipped', 0) }] : []),
      ] as LineSeries[],
    };
  }, [series, key, halfLife, run.tokens_per_step, run.best?.loss, run.best?.accuracy]);
  const markers = useMemo(() => marksOf(events, view, run, series), [events, key, series]);
  const common = {
    ...axisLook(view.axis, run.unit), logX: view.logX, logY: view.logY, markers,
    syncKey: `overview ${run.id}`, empty: loading ? 'Loading…' : 'Not recorded in this run yet.',
  };
  return (
    <>
      <div class={has('validation_accuracy') ? 'grid two' : 'grid'}>
        <LineChart {...common} title="Loss" series={lines.loss} formatY={loss} formatTickY={(value) => number(value, 4)} height={300}
          {...(view.fitEnd ? { rangeOfY: endRange(lines.trained) } : {})}
          note={markers.length > 0 ? 'Dashed lines: events that changed the run (a rewind, a site moved to BF16, another plan or setting, a remedy applied by the guard).' : undefined} />
        {has('validation_accuracy') && (
          <LineChart {...common} logY={false} title="Validation accuracy" series={lines.accuracy} formatY={(value) => share(value, 2)}
            formatTickY={(value) => share(value, 1)} height={300} />
        )}
      </div>
      <div class="grid charts">
        <LineChart {...common} title="Gradient norm" series={lines.norm} formatY={(value) => number(value, 3)} height={170} />
        <LineChart {...common} title="Learning rate" series={lines.rate} formatY={(value) => number(value, 3)} height={170} />
        <LineChart {...common} title={`${capital(run.unit)} per second`} series={lines.speed} formatY={short} height={170} />
        {has('saturated') && (
          <LineChart {...common} logY={false} title="Saturated elements per step" series={lines.counts} formatY={short} height={170} />
        )}
        {has('overflows') && (
          <LineChart {...common} logY={false} title="Overflows and skipped steps" series={lines.overflows} formatY={short} height={170} />
        )}
        {has('loss_scale') && <LineChart {...common} title="Loss scale" series={lines.scale} formatY={short} height={170} />}
        {has('max_logit') && (
          <LineChart {...common} title="Largest attention logit" series={lines.logit} formatY={(value) => number(value, 3)} height={170} />
        )}
      </div>
    </>
  );
}

const markedKinds: Record<string, string> = { rewound: 'c1', widened: 'c3', act: 'c4', plan: 'c2', setting: 'c2' };

function marksOf(events: RunEvent[], view: CurveView, run: RunDetail, series: SeriesByName): Mark[] {
  const marked = events.filter((event) => markedKinds[event.kind] !== undefined).slice(0, 100);
  const x = xOf(view.axis, marked.map((event) => event.step), run.tokens_per_step, series.time);
  return marked.flatMap((event, i) => {
    const at = x[i];
    return typeof at === 'number' ? [{ x: at, color: markedKinds[event.kind] ?? 'c1' }] : [];
  });
}

function Shares({ run }: { run: RunDetail }) {
  const parts = Object.entries(run.shares).map(([name, value]) => ({ name, value }));
  return (
    <>
      <ShareBars parts={parts} format={(value) => share(value, 1)} label="Share of matrix-product FLOPs by format" percents={false} colors={formatColor} />
      <p class="note">By the higher-precision operand of each matrix product. <a href={href(['run', run.id, 'precision'])}>Precision map</a></p>
    </>
  );
}

function Events({ events }: { events: RunEvent[] }) {
  if (events.length === 0) return <p class="quiet">None so far.</p>;
  const newest = [...events].sort((a, b) => b.step - a.step).slice(0, 200);
  return (
    <div class="scroll-y">
      <table class="data">
        <thead><tr><th scope="col" class="num">Step</th><th scope="col">Kind</th><th scope="col">What</th></tr></thead>
        <tbody>
          {newest.map((event, i) => (
            <tr key={i}><td class="num">{count(event.step)}</td><td><span class="tag">{event.kind}</span></td><td class="prose">{event.text}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Settings({ run }: { run: RunDetail }) {
  const rows: [string, string][] = [
    ...Object.entries(run.config).sort(([a], [b]) => a.localeCompare(b)),
    ...Object.entries(run.environment).map(([key, value]): [string, string] => [`environment.${key}`, plain(value)]),
  ];
  return (
    <div class="scroll-y">
      <table class="data settings">
        <tbody>
          {rows.map(([key, value]) => (
            <tr key={key}><th scope="row"><code>{key}</code></th><td class="prose">{rangesInWords(rangesOf(run.changed_settings, key, value))}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
