// Two runs side by side: the keys of their configs that differ, and what they ended with.
import { useState } from 'preact/hooks';
import { api } from '../api';
import { useResource, useRuns } from '../hooks';
import { Check, Select } from '../parts/controls';
import { Empty, ErrorBox, Loading } from '../parts/feedback';
import { changed, go, href, type Place } from '../router';
import { isListed } from './run_actions';
import { loss, share, short, signed } from '../format';
import type { Maybe, Run } from '../types';
import { hasAccuracy } from '../units';

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
          : (
            <>
              <Table left={left.data} right={right.data} all={all} setAll={setAll} />
              <Outcome left={left.data} right={right.data} />
            </>
          )}
    </div>
  );
}

// The last metrics of both, and B minus A.
function Outcome({ left, right }: { left: Run; right: Run }) {
  const part = (value: Maybe): Maybe => (value === null ? null : 100 * value);
  const minus = (a: Maybe, b: Maybe): Maybe => (a === null || b === null ? null : b - a);
  const row = (name: string, of: (run: Run) => Maybe, say: (value: Maybe) => string, decimals: number) => (
    <tr key={name}>
      <th scope="row">{name}</th><td class="num">{say(of(left))}</td><td class="num">{say(of(right))}</td>
      <td class="num">{signed(minus(of(left), of(right)), decimals)}</td>
    </tr>
  );
  const speed = (run: Run) => `${short(run.tokens_per_second)} ${run.unit}/s`;
  return (
    <div class="scroll-x card flush outcome">
      <table class="data">
        <thead><tr><th scope="col">Final metrics</th><th scope="col" class="num">A: {left.name}</th><th scope="col" class="num">B: {right.name}</th><th scope="col" class="num">B − A</th></tr></thead>
        <tbody>
          {row('Final training loss', (run) => run.final_train_loss, loss, 4)}
          {row('Validation loss', (run) => run.validation_loss, loss, 4)}
          {hasAccuracy([left, right]) && row('Validation accuracy', (run) => part(run.validation_accuracy), (value) => share(value === null ? null : value / 100, 2), 2)}
          <tr><th scope="row">Speed</th><td class="num">{speed(left)}</td><td class="num">{speed(right)}</td><td /></tr>
        </tbody>
      </table>
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
        <p class="quiet">{different.length === 0 ? 'The configs are equal.' : `${different.length} ${different.length === 1 ? 'key differs' : 'keys differ'}.`}</p>
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
