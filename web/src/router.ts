// Where the page is: "#/run/<id>/numerics?statistic=amax". Everything that is shown can be linked and gone back to.
import { useLayoutEffect, useState } from 'preact/hooks';

export interface Place {
  path: string[];
  query: URLSearchParams;
}

export function parse(hash: string): Place {
  const text = hash.replace(/^#\/?/, '');
  const mark = text.indexOf('?');
  const path = (mark < 0 ? text : text.slice(0, mark)).split('/').filter(Boolean).map(decode);
  return { path, query: new URLSearchParams(mark < 0 ? '' : text.slice(mark + 1)) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

type Values = Record<string, string | number | null | undefined>;

export function href(path: string[], values: Values = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== '') query.set(key, String(value));
  }
  const tail = query.toString();
  return `#/${path.map(encodeURIComponent).join('/')}${tail ? `?${tail}` : ''}`;
}

// The same place with some values changed; null removes one.
export function changed(place: Place, values: Values): string {
  const all: Values = Object.fromEntries(place.query);
  return href(place.path, { ...all, ...values });
}

// A setting that is turned often (a slider, a select) replaces the entry in the history; a place is pushed.
export function go(to: string, how: 'push' | 'replace' = 'push'): void {
  if (to === location.hash) return;
  if (how === 'push') location.hash = to;
  else {
    history.replaceState(null, '', to);
    window.dispatchEvent(new HashChangeEvent('hashchange'));
  }
}

export function usePlace(): Place {
  const [place, setPlace] = useState(() => parse(location.hash));
  useLayoutEffect(() => {
    const follow = () => setPlace(parse(location.hash));
    window.addEventListener('hashchange', follow);
    return () => window.removeEventListener('hashchange', follow);
  }, []);
  return place;
}
