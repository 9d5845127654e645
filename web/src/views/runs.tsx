// All runs of the folder: find, sort, manage, pick some to compare.
import { useMemo, useState } from 'preact/hooks';
import { ApiError } from '../api';
import { Empty, ErrorBox, Loading } from '../parts/feedback';
import { StatusBadge } from '../parts/badges';
import { Tags } from '../parts/tags';
import { ago, count, date, durationShort, loss, share } from '../format';
import { useForm, useNow, useRuns, useServer } from '../hooks';
import { changed, go, href, type Place } from '../router';
import type { Run } from '../types';
import { hasAccuracy, speed, speedTitle } from '../units';
import { EditButton, isShown, RunEditor, RunRemarks, ShowChecks } from './run_actions';
import { compareRuns, matchesFilter, sortKeys, type SortKey } from './runs_order';

interface ColumnTitle {
  key: SortKey | null;
  title: string;
  class?: string;
  below?: { key: SortKey; title: string }; // what the second line of its cells has
}

// The accuracy is below the loss where any run has one; the speed is in what the runs count.
const columnsFor = (runs: Run[]): ColumnTitle[] => [
  { key: 'status', title: 'Status' },
  { key: 'name', title: 'Run' },
  { key: 'model', title: 'Model' },
  { key: 'recipe', title: 'Recipe' },
  { key: null, title: 'Tags' },
  { key: 'step', title: 'Progress' },
  { key: 'loss', title: 'Loss', class: 'num' },
  { key: 'validation_loss', title: 'Validation', class: 'num', ...(hasAccuracy(runs) ? { below: { key: 'validation_accuracy', title: 'accuracy' } } : {}) },
  { key: 'tokens_per_second', title: speedTitle(runs), class: 'num' },
  { key: 'alerts', title: 'Alerts', class: 'num' },
  { key: 'updated', title: 'Updated', class: 'num' },
];

export function RunsView({ place }: { place: Place }) {
  const { data, error, reload, problems } = useRuns();
  const now = useNow(5000);
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const filter = place.query.get('filter') ?? '';
  const asked = place.query.get('sort') ?? 'started';
  const sort = (sortKeys as string[]).includes(asked) ? (asked as SortKey) : 'started';
  const descending = (place.query.get('order') ?? 'down') === 'down';

  const show = place.query.get('show') ?? '';
  const besides = show.split(',').filter(Boolean);

  const shown = useMemo(
    () => (data ?? []).filter((run) => isShown(run, besides) && matchesFilter(run, filter))
      .sort((a, b) => compareRuns(a, b, sort, descending)),
    [data, filter, sort, descending, show]);

  if (!data) return error ? <ErrorBox error={error} retry={reload} /> : <Loading what="runs" />;
  const troubles = problems.map(({ what, remedy }) => <ErrorBox key={what} error={new ApiError(200, what, remedy)} />);
  if (data.length === 0) return <>{troubles.length > 0 && <div class="page">{troubles}</div>}<NoRuns /></>;

  const chosen = shown.filter((run) => picked.has(run.id)).map((run) => run.id);
  const sortBy = (key: SortKey) => {
    const order = key === sort ? (descending ? 'up' : 'down') : key === 'name' || key === 'model' ? 'up' : 'down';
    go(changed(place, { sort: key, order }), 'replace');
  };
  const toggle = (id: string) => {
    const next = new Set(picked);
    if (!next.delete(id)) next.add(id);
    setPicked(next);
  };
  const columns = columnsFor(shown);
  const allPicked = shown.length > 0 && shown.every((run) => picked.has(run.id));

  return (
    <div class="page">
      <div class="page-head">
        <h1>Runs</h1>
        <span class="quiet tabular">{shown.length === data.length ? count(data.length) : `${shown.length} of ${data.length}`}</span>
        <input type="search" class="filter" placeholder="Filter by name, model, recipe, tag, status" value={filter}
          aria-label="Filter runs" onInput={(event) => go(changed(place, { filter: event.currentTarget.value }), 'replace')} />
        <ShowChecks runs={data} shown={besides} change={(kinds) => go(changed(place, { show: kinds.join(',') }), 'replace')} />
        <span class="grow" />
        <PickedActions chosen={chosen} clear={() => setPicked(new Set())} />
      </div>
      {error && <ErrorBox error={error} retry={reload} />}
      {troubles}
      <div class="scroll-x card flush">
        <table class="data runs">
          <thead>
            <tr>
              <th scope="col" class="pick">
                <input type="checkbox" aria-label="Pick all shown runs" checked={allPicked}
                  onChange={() => setPicked(allPicked ? new Set() : new Set(shown.map((run) => run.id)))} />
              </th>
              {columns.map(({ key, title, class: name, below }) => (
                <th scope="col" key={title} class={name}
                  {...(key === sort || below?.key === sort ? { 'aria-sort': descending ? 'descending' as const : 'ascending' as const } : {})}>
                  {key ? <button type="button" class="sort" onClick={() => sortBy(key)}>{title}</button> : title}
                  {below && <button type="button" class="sort below" onClick={() => sortBy(below.key)}>{below.title}</button>}
                </th>
              ))}
              <th scope="col" class="edit"><span class="sr-only">Edit</span></th>
            </tr>
          </thead>
          <tbody>
            {shown.map((run) => (
              <Row key={run.id} run={run} among={shown} now={now} picked={picked.has(run.id)} toggle={() => toggle(run.id)} saved={reload} />
            ))}
          </tbody>
        </table>
      </div>
      {shown.length === 0 && <p class="quiet">No run matches “{filter}”.</p>}
    </div>
  );
}

function Row({ run, among, now, picked, toggle, saved }: {
  run: Run; among: Run[]; now: number; picked: boolean; toggle: () => void; saved: () => void;
}) {
  const part = run.steps > 0 ? Math.min(1, run.step / run.steps) : 0;
  const { editing, setEditing, opener } = useForm<HTMLTableCellElement>();
  return (
    <>
    <tr class={`${picked ? 'picked' : ''} ${run.hidden || run.deleted !== null ? 'unlisted' : ''}`}>
      <td class="pick"><input type="checkbox" checked={picked} onChange={toggle} aria-label={`Pick ${run.name}`} /></td>
      <td class="status"><StatusBadge status={run.status} /></td>
      <th scope="row" class="name"><a href={href(['run', run.id, 'overview'])} title={run.name}>{run.name}</a><RunRemarks run={run} /></th>
      <td class="short" data-label="Model" title={run.model}>{run.model}</td>
      <td class="short" data-label="Recipe"><code>{run.recipe}</code></td>
      <td class="tags-cell"><Tags run={run.id} name={run.name} tags={run.tags} most={1} saved={saved} /></td>
      <td class="progress-cell">
        <progress value={part} max={1} aria-label={`${run.name}: ${count(run.step)} of ${count(run.steps)} steps`} />
        <span class="quiet tabular">
          {count(run.step)} / {count(run.steps)}
          {run.status === 'running' && run.eta_seconds !== null ? ` · ${durationShort(roughly(run.eta_seconds))} left` : ''}
        </span>
      </td>
      <td class="num" data-label="Loss" title="training loss, mean over the last twentieth of the steps">{loss(run.final_train_loss)}</td>
      <td class="num" data-label="Validation">
        {loss(run.validation_loss)}
        {run.validation_accuracy !== null && <span class="below accuracy" title="validation accuracy">{share(run.validation_accuracy, 2)}</span>}
      </td>
      <td class="num speed" data-label={speedTitle([run])}><Speed run={run} among={among} /></td>
      <td class="num" data-label="Alerts">
        <AlertCount run={run} />
      </td>
      <td class="num quiet" data-label="Updated" title={`started ${date(run.started)}, updated ${date(run.updated)}`}>{ago(run.updated, now)}</td>
      <td class="edit" ref={opener}><EditButton run={run} open={editing} toggle={() => setEditing(!editing)} /></td>
    </tr>
    {editing && <tr class="editing"><td colSpan={columnsFor(among).length + 2}><RunEditor run={run} close={() => setEditing(false)} saved={saved} /></td></tr>}
    </>
  );
}

// Its unit below it where the title cannot say it.
function Speed({ run, among }: { run: Run; among: Run[] }) {
  const [value, unit] = speed(run.tokens_per_second, run, among).split(' ');
  return <>{value}{unit && <span class="below quiet">{unit}</span>}</>;
}

// Whole minutes are close enough for a table.
function roughly(seconds: number): number {
  return seconds > 120 ? Math.round(seconds / 60) * 60 : Math.round(seconds);
}

function PickedActions({ chosen, clear }: { chosen: string[]; clear: () => void }) {
  const runs = chosen.join(',');
  const link = (path: string, text: string, enabled: boolean, why: string) => enabled
    ? <a class="button" href={href([path], { runs })}>{text}</a>
    : <span class="button" role="link" aria-disabled="true" title={why}>{text}</span>;
  return (
    <span class="row">
      {chosen.length > 0 && <button type="button" class="ghost" onClick={clear}>Clear {chosen.length}</button>}
      {link('diff', 'Config difference', chosen.length === 2, 'Pick two runs to see how their configs differ')}
      {link('compare', `Compare${chosen.length > 1 ? ` ${chosen.length}` : ''}`, chosen.length > 1, 'Pick two or more runs to compare')}
    </span>
  );
}

function NoRuns() {
  const server = useServer();
  return (
    <Empty title="No runs yet in this folder">
      {server && server.depth > 0 && <p>Looked for <code>{server.store}</code> in <code>{server.folder}</code> and up to {server.depth} folders below it.</p>}
      <p>Start one in the folder that this dashboard watches; it appears here by itself.</p>
      <pre><code>quaver train --preset tiny --data FOLDER --recipe fp8-delayed --name first</code></pre>
      <p>Runs elsewhere? Stop the dashboard and start it there: <code>quaver dash FOLDER</code>.</p>
    </Empty>
  );
}

// How many, and the highest severity.
function AlertCount({ run }: { run: Run }) {
  if (!run.alerts) return <span class="quiet">0</span>;
  const severity = run.critical_alerts > 0 ? 'critical' : 'warning';
  const text = run.critical_alerts > 0 ? `${count(run.critical_alerts)} critical of ${count(run.alerts)}` : count(run.alerts);
  return <a class={`alert-count severity-${severity}`} href={href(['run', run.id, 'alerts'])} aria-label={`Alerts: ${text}`}>{text}</a>;
}
