// What is said when there is nothing to show: waiting, failed, empty.
import type { ComponentChildren } from 'preact';
import type { ApiError } from '../api';

export function Loading({ what }: { what: string }) {
  return <p class="quiet loading" role="status">Loading {what}…</p>;
}

export function ErrorBox({ error, retry }: { error: ApiError; retry?: () => void }) {
  return (
    <div class="callout error" role="alert">
      <p><b>{error.message}</b></p>
      <p>{withCode(error.remedy)}</p>
      {retry && <button type="button" class="small" onClick={retry}>Try again</button>}
    </div>
  );
}

// A record that a run does not have is no failure: it is said quietly.
export function Problem({ error }: { error: ApiError }) {
  if (error.status !== 404) return <ErrorBox error={error} />;
  return <p class="quiet">{error.message}: {withCode(error.remedy)}</p>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p><b>{title}</b></p>
      {children}
    </div>
  );
}

// Text in `backquotes` as code.
export function withCode(text: string): ComponentChildren {
  return text.split('`').map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part));
}
