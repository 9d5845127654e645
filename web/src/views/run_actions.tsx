// What people change about a run: its name, tags, note, whether it is listed, its deletion and the way back.
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { api, type ApiError } from '../api';
import { asApiError, useCanChange, useForm } from '../hooks';
import { parseTags } from '../parts/tags';
import type { Run } from '../types';

const longestName = 128;
const longestNote = 4000;

// As the server takes it: line ends are one character, other controls and the ends' spaces are gone.
export function cleaned(text: string, lines: 'one' | 'many'): string {
  const unified = text.replace(/\r\n?/g, '\n');
  const controls = lines === 'many' ? /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/g : /[\u0000-\u001f\u007f-\u009f]/g;
  return unified.replace(controls, ' ').trim();
}

export function isListed(run: Run): boolean {
  return !run.hidden && run.deleted === null;
}

// The button that opens the form of a run; none where nothing can be changed.
export function EditButton({ run, open, toggle }: { run: Run; open: boolean; toggle: () => void }) {
  const canChange = useCanChange();
  if (!canChange) return null;
  return (
    <button type="button" class="ghost" aria-expanded={open} aria-label={`Edit ${run.name}`} title="Rename, note, hide, delete" onClick={toggle}>
      <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
        <path d="M9.7 1.6l2.7 2.7-7.6 7.6-3.4.7.7-3.4zM8.3 4.4l1.3 1.3" fill="none" stroke="currentColor" stroke-width="1.2" />
      </svg>
    </button>
  );
}

interface EditorProps {
  run: Run;
  close: () => void;
  saved: () => void;
}

export function RunEditor({ run, close, saved }: EditorProps) {
  const [name, setName] = useState(run.name);
  const [tags, setTags] = useState(run.tags.join(', '));
  const [note, setNote] = useState(run.note);
  const [error, setError] = useState<ApiError>();
  const first = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => first.current?.focus(), []);

  const act = async (what: () => Promise<void>) => {
    try {
      await what();
      if (run.deleted !== null && lastDeletion?.id === run.id) tellDeletion(undefined); // there is nothing left to undo
      close();
      saved();
    } catch (failure) {
      setError(asApiError(failure));
    }
  };
  const save = (event: Event) => {
    event.preventDefault();
    const given = cleaned(name, 'one');
    void act(() => api.edit(run.id, {
      name: given === run.trained_name ? '' : given, tags: parseTags(cleaned(tags, 'one')), note: cleaned(note, 'many'),
    }));
  };
  return (
    <form class="run-editor" onSubmit={save} onKeyDown={(event) => event.key === 'Escape' && close()} aria-label={`Edit ${run.name}`}>
      <Field label="Name" hint={run.name === run.trained_name ? undefined : `trained as ${run.trained_name}; leave empty to show that`}>
        {(id) => <input id={id} ref={first} value={name} maxLength={longestName} onInput={(event) => setName(event.currentTarget.value)} />}
      </Field>
      <Field label="Tags" hint="separated by commas">
        {(id) => <input id={id} value={tags} onInput={(event) => setTags(event.currentTarget.value)} />}
      </Field>
      <Field label="Note">
        {(id) => <textarea id={id} rows={3} value={note} maxLength={longestNote} onInput={(event) => setNote(event.currentTarget.value)} />}
      </Field>
      <div class="row">
        <button type="submit">Save</button>
        <button type="button" class="ghost" onClick={close}>Cancel</button>
        <span class="grow" />
        <button type="button" class="ghost" onClick={() => void act(() => api.edit(run.id, { hidden: !run.hidden }))}>
          {run.hidden ? 'Show in lists' : 'Hide'}
        </button>
        {run.deleted === null
          ? <button type="button" class="ghost danger" onClick={() => void act(() => deleteRun(run, saved))}>Delete</button>
          : <DeletedActions run={run} act={act} />}
      </div>
      {error && <p class="inline-error" role="alert">{error.message}: {error.remedy}</p>}
    </form>
  );
}

function Field({ label, hint, children }: { label: string; hint?: string | undefined; children: (id: string) => ComponentChildren }) {
  const id = useId();
  return (
    <div class="editor-field">
      <label for={id}>{label}</label>
      {children(id)}
      {hint && <span class="quiet">{hint}</span>}
    </div>
  );
}

// The second act, which cannot be undone, is asked for twice in the same place.
function DeletedActions({ run, act }: { run: Run; act: (what: () => Promise<void>) => Promise<void> }) {
  const [sure, setSure] = useState(false);
  return (
    <>
      <button type="button" class="ghost" onClick={() => void act(() => api.edit(run.id, { deleted: false }))}>Restore</button>
      {sure
        ? <button type="button" class="danger" onClick={() => void act(() => api.remove(run.id))}>Remove its records; this cannot be undone</button>
        : <button type="button" class="ghost danger" disabled={run.status === 'running'} onClick={() => setSure(true)}
          title={run.status === 'running' ? 'It is training: stop it first' : "Its folder stays on the disk"}>Delete for good…</button>}
    </>
  );
}

interface Deletion {
  id: string;
  name: string;
  restored: () => void;
}

let lastDeletion: Deletion | undefined;
const deletionWatchers = new Set<(deletion: Deletion | undefined) => void>();

function tellDeletion(deletion: Deletion | undefined): void {
  lastDeletion = deletion;
  deletionWatchers.forEach((watcher) => watcher(deletion));
}

async function deleteRun(run: Run, restored: () => void): Promise<void> {
  await api.edit(run.id, { deleted: true });
  tellDeletion({ id: run.id, name: run.name, restored });
}

// At the foot of every view, after a run was deleted: the way back.
export function UndoBar() {
  const [deletion, setDeletion] = useState(lastDeletion);
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    deletionWatchers.add(setDeletion);
    return () => {
      deletionWatchers.delete(setDeletion);
    };
  }, []);
  const undo = async () => {
    if (!deletion) return;
    try {
      await api.edit(deletion.id, { deleted: false });
      deletion.restored();
      setError(undefined);
      tellDeletion(undefined);
    } catch (failure) {
      setError(asApiError(failure));
    }
  };
  return (
    <div class="undo-place" role="status">
      {deletion && (
        <div class="undo-bar">
          <span><b>{deletion.name}</b> deleted{error ? `; it could not be restored: ${error.message}` : ''}</span>
          <button type="button" class="small" onClick={() => void undo()}>Undo</button>
          <button type="button" class="ghost" aria-label="Dismiss" onClick={() => tellDeletion(undefined)}>✕</button>
        </div>
      )}
    </div>
  );
}

// Below a run's name: in which folder its store lies, what is odd about it, and the beginning of its note.
export function RunRemarks({ run }: { run: Run }) {
  const [line = ''] = run.note.split('\n');
  return (
    <>
      {run.store_folder && <span class="remark quiet" title="the folder of its store">{run.store_folder}/</span>}
      {run.deleted !== null ? <span class="remark quiet">deleted</span> : run.hidden && <span class="remark quiet">hidden</span>}
      {line && <span class="remark quiet" title={run.note}>{line}</span>}
      {run.missing_folder !== null && <MissingFolder folder={run.missing_folder} />}
    </>
  );
}

function MissingFolder({ folder }: { folder: string }) {
  return <span class="remark missing" title="its records are here; checkpoints and logs are not">its folder is gone: {folder}</span>;
}

// On the run's own page: everything that people wrote about it, and the form to change it.
export function RunNotes({ run, saved }: { run: Run; saved: () => void }) {
  const { editing, setEditing, opener } = useForm<HTMLSpanElement>();
  const facts: (string | false)[] = [
    run.name !== run.trained_name && `trained as ${run.trained_name}`,
    run.store_folder !== '' && `in ${run.store_folder}/`,
    run.deleted !== null ? 'deleted' : run.hidden && 'hidden',
  ];
  const said = facts.filter(Boolean).join(' · ');
  return (
    <div class="run-notes">
      <span ref={opener}><EditButton run={run} open={editing} toggle={() => setEditing(!editing)} /></span>
      {said && <span class="quiet">{said}</span>}
      {run.missing_folder !== null && <MissingFolder folder={run.missing_folder} />}
      {run.note && !editing && <p class="run-note">{run.note}</p>}
      {editing && <RunEditor run={run} close={() => setEditing(false)} saved={saved} />}
    </div>
  );
}

// Which runs the list shows besides the listed ones, in the address: show=hidden,deleted.
export function ShowChecks({ runs, shown, change }: { runs: Run[]; shown: string[]; change: (shown: string[]) => void }) {
  const counts = { hidden: runs.filter((run) => run.hidden && run.deleted === null).length, deleted: runs.filter((run) => run.deleted !== null).length };
  return (
    <>
      {(['hidden', 'deleted'] as const).filter((kind) => counts[kind] > 0 || shown.includes(kind)).map((kind) => (
        <label class="check" key={kind}>
          <input type="checkbox" checked={shown.includes(kind)}
            onChange={() => change(shown.includes(kind) ? shown.filter((one) => one !== kind) : [...shown, kind])} />
          <span>{`Show ${kind} (${counts[kind]})`}</span>
        </label>
      ))}
    </>
  );
}

export function isShown(run: Run, shown: string[]): boolean {
  if (run.deleted !== null) return shown.includes('deleted');
  return !run.hidden || shown.includes('hidden');
}

