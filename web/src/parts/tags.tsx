// A run's tags, and a small form to change them.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { api, type ApiError } from '../api';
import { asApiError, useCanChange, useForm } from '../hooks';

const mostTags = 32;
const longestTag = 64;

// "a, b ,a" → ["a", "b"]
export function parseTags(text: string): string[] {
  const tags = text.split(',').map((tag) => tag.trim().slice(0, longestTag)).filter(Boolean);
  return [...new Set(tags)].slice(0, mostTags);
}

interface TagsProps {
  run: string;
  name: string;
  tags: string[];
  most?: number; // the rest is a number
  saved: () => void;
}

export function Tags({ run, name, tags, most = mostTags, saved }: TagsProps) {
  const canChange = useCanChange();
  const { editing, setEditing, opener } = useForm<HTMLSpanElement>();
  const [text, setText] = useState('');
  const [error, setError] = useState<ApiError>();
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => {
    if (editing) input.current?.focus();
  }, [editing]);

  const close = () => {
    setEditing(false);
    setError(undefined);
  };
  const save = async (event: Event) => {
    event.preventDefault();
    try {
      await api.edit(run, { tags: parseTags(text) });
      close();
      saved();
    } catch (failure) {
      setError(asApiError(failure));
    }
  };

  if (!editing) {
    return (
      <span class="tags" ref={opener}>
        {tags.slice(0, most).map((tag) => <span class="tag" key={tag} title={tag}>{tag}</span>)}
        {tags.length > most && <span class="quiet" title={tags.slice(most).join(', ')}>+{tags.length - most}</span>}
        {canChange && <button type="button" class="ghost tag-edit" aria-label={`Edit tags of ${name}`}
          onClick={() => {
            setText(tags.join(', '));
            setEditing(true);
          }}>{tags.length ? 'edit' : '+ tag'}</button>}
      </span>
    );
  }
  return (
    <form class="tags" onSubmit={save} onKeyDown={(event) => event.key === 'Escape' && close()}>
      <input ref={input} value={text} aria-label={`Tags of ${name}, separated by commas`} placeholder="tags, separated by commas"
        onInput={(event) => setText(event.currentTarget.value)} />
      <button type="submit" class="small">Save</button>
      <button type="button" class="ghost" onClick={close}>Cancel</button>
      {error && <span class="inline-error" role="alert">{error.message}</span>}
    </form>
  );
}
