// One run: its name and state above the tab that is open.
import { StatusBadge } from '../parts/badges';
import { Empty, ErrorBox, Loading } from '../parts/feedback';
import { Tags } from '../parts/tags';
import { count } from '../format';
import { useRun } from '../hooks';
import { href, type Place } from '../router';
import { rangesInWords, rangesOf } from '../settings';
import type { RunDetail } from '../types';
import { AlertsOfRun } from './alerts';
import { NumericsView } from './numerics';
import { OverviewView } from './overview';
import { PerformanceView } from './performance';
import { PrecisionView } from './precision';
import { RunNotes } from './run_actions';

const tabs = [
  { id: 'overview', text: 'Overview' },
  { id: 'numerics', text: 'Numerics' },
  { id: 'precision', text: 'Precision map' },
  { id: 'performance', text: 'Performance' },
  { id: 'alerts', text: 'Alerts' },
];

export function RunFrame({ id, tab, place }: { id: string; tab: string; place: Place }) {
  const { data: run, error, reload } = useRun(id);
  if (!run) {
    return error ? <div class="page"><ErrorBox error={error} retry={reload} /><p><a href="#/">All runs</a></p></div> : <Loading what="the run" />;
  }
  return (
    <>
      <div class="run-head">
        <div class="row">
          <h1 title={run.name}>{run.name}</h1>
          <StatusBadge status={run.status} />
          <span class="quiet run-facts">
            {run.model} · <code>{rangesInWords(rangesOf(run.changed_settings, 'precision.recipe', run.recipe))}</code>
            {' · seed '}{rangesInWords(rangesOf(run.changed_settings, 'train.seed', String(run.seed)))}
          </span>
          <Tags run={id} name={run.name} tags={run.tags} saved={reload} />
          <RunNotes run={run} saved={reload} />
        </div>
        <nav class="tabs" aria-label="Views of the run">
          {tabs.map((one) => (
            <a key={one.id} href={href(['run', id, one.id])} {...(one.id === tab ? { 'aria-current': 'page' as const } : {})}>
              {one.text}
              {one.id === 'alerts' && run.alerts > 0 && <span class={run.critical_alerts > 0 ? 'count critical' : 'count'}>{count(run.alerts)}</span>}
            </a>
          ))}
        </nav>
      </div>
      {error && <ErrorBox error={error} retry={reload} />}
      <Tab run={run} tab={tab} place={place} />
    </>
  );
}

function Tab({ run, tab, place }: { run: RunDetail; tab: string; place: Place }) {
  switch (tab) {
    case 'overview': return <OverviewView run={run} place={place} />;
    case 'numerics': return <NumericsView run={run} place={place} />;
    case 'precision': return <PrecisionView run={run} place={place} />;
    case 'performance': return <PerformanceView run={run} place={place} />;
    case 'alerts': return <AlertsOfRun run={run} place={place} />;
    default: return <Empty title="A run has no such view"><p><a href={href(['run', run.id])}>Overview</a></p></Empty>;
  }
}
