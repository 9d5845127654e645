// The configs of two runs side by side: only the keys that differ.
import { useState } from 'preact/hooks';
import { api } from '../api';
import { useResource, useRuns } from '../hooks';
import { Check, Select } from '../parts/controls';
import { Empty, ErrorBox, Loading } from '../parts/feedback';
import { changed, go, href, type Place } from '../router';
import { isListed } from './run_actions';

export interface KeyDifference {
  key: string;
  left: string | undefined;
  right: string | undefined;
}

export function differences(left: Record<string, string>, right: Record<string, string>): KeyDifference[] {
  const keys = [...new Set([...Object.keys(left), ...Object.keys(right)])].sort();
  return keys.map((key) => ({ key, left: left[key], right: right[key] })).filter((one) => one.left !== one.right);
}

export function DifferenceView({ place }: { place: Place }) {
  const [a = '', b = ''] = (place.query.get('runs') ?? '').split(',');
  const [all, setAll] = useState(false);
  const runs = useRuns();
  const left = useResource(a ? `run ${a}` : null, (signal) => api.run(a, signal));
  const right = useResource(b ? `run ${b}` : null, (signal) => api.run(b, signal));
  const options = (runs.data ?? []).filter((run) => isListed(run) || run.id === a || run.id === b).map((run) => ({ value: run.id, text: `${run.name} (${run.recipe})` }));
  const choose = (first: string, second: string) => go(changed(place, { runs: `${first},${second}` }));

  return (
    <div class="page">
      <div class="page-head">
        <h1>Config difference</h1>
        <Select label="A" value={a} options={[{ value: '', text: 'choose a run' }, ...options]} change={(id) => choose(id, b)} />
        <Select label="B" value={b} options={[{ value: '', text: 'choose a run' }, ...options]} change={(id) => choose(a, id)} />
        <button type="button" class="small" onClick={() => choose(b, a)}>Swap</button>
        <span class="grow" />
        {a && b && <a class="button" href={href(['compare'], { runs: `${a},${b}` })}>Compare curves</a>}
      </div>
      {[left.error, right.error].map((error) => error && <ErrorBox key={error.message} error={error} />)}
      {!a || !b ? <Empty title="Choose two runs"><p>Their configs are then shown side by side, only the keys that differ.</p></Empty>
        : !left.data || !right.data ? <Loading what="configs" />
          : <Table left={left.data} right={right.data} all={all} setAll={setAll} />}
    </div>
  );
}

interface Named {
  name: string;
  config: Record<string, string>;
}

function Table({ left, right, all, setAll }: { left: Named; right: Named; all: boolean; setAll: (on: boolean) => void }) {
  const different = differences(left.config, right.config);
  const rows = all ? everyKey(left.config, right.config) : different;
  return (
    <>
      <div class="row spread">
        <p class="quiet">{different.length === 0 ? 'The configs are equal.' : `${different.length} keys differ.`}</p>
        <Check label="Show equal keys too" checked={all} change={setAll} />
      </div>
      {rows.length > 0 && (
        <div class="scroll-x card flush">
          <table class="data diff">
            <thead><tr><th scope="col">Key</th><th scope="col">A: {left.name}</th><th scope="col">B: {right.name}</th></tr></thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.key} class={row.left !== row.right ? 'differs' : 'quiet'}>
                  <th scope="row"><code>{row.key}</code></th>
                  <td>{row.left ?? <span class="quiet">not set</span>}</td>
                  <td>{row.right ?? <span class="quiet">not set</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function everyKey(left: Record<string, string>, right: Record<string, string>): KeyDifference[] {
  const keys = [...new Set([...Object.keys(left), ...Object.keys(right)])].sort();
  return keys.map((key) => ({ key, left: left[key], right: right[key] }));
}
