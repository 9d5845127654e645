// Text that the model wrote at some steps.
import { useState } from 'preact/hooks';
import { api } from '../api';
import { count } from '../format';
import { useResource } from '../hooks';
import { Card } from './controls';
import { ErrorBox } from './feedback';

export function Samples({ run }: { run: string }) {
  const { data, error } = useResource(`samples ${run}`, (signal) => api.samples(run, signal), { run, kinds: ['samples'] });
  const [chosen, setChosen] = useState<number | null>(null); // none: the newest, also when another comes
  const samples = [...(data ?? [])].sort((a, b) => a.step - b.step);
  const index = chosen === null ? samples.length - 1 : Math.min(chosen, samples.length - 1);
  const sample = samples[index];
  const controls = samples.length > 1 && (
    <span class="row">
      <button type="button" class="small" disabled={index <= 0} onClick={() => setChosen(index - 1)} aria-label="Earlier sample">‹</button>
      <span class="tabular quiet">step {count(sample?.step)}</span>
      <button type="button" class="small" disabled={index >= samples.length - 1} aria-label="Later sample"
        onClick={() => setChosen(index + 1 >= samples.length - 1 ? null : index + 1)}>›</button>
    </span>
  );
  return (
    <Card title="Samples" controls={controls}>
      {error && <ErrorBox error={error} />}
      {sample ? <pre class="sample" tabIndex={0} aria-label={`Sample of step ${sample.step}`}>{sample.text}</pre>
        : <p class="quiet">No text yet. Set <code>train.sample_every</code> to see what the model writes.</p>}
    </Card>
  );
}
