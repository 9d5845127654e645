// Data that a view shows, kept fresh by the event stream.
import type { RefObject } from 'preact';
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { api, ApiError } from './api';
import { live, type LiveState } from './live';
import { recall, remember } from './memory';
import { MetricsFeed } from './metrics_feed';
import { Pump } from './pump';
import type { ChangeKind, SeriesByName, ServerInfo } from './types';

export interface Resource<T> {
  data: T | undefined;
  error: ApiError | undefined;
  loading: boolean;
  reload: () => void;
}

export interface Freshness {
  run?: string | undefined; // reload when this run…
  kinds?: ChangeKind[]; // …says that one of these changed
  anyRun?: boolean; // or any run at all
  pause?: number; // at least so long between two loads, milliseconds
  keep?: boolean; // show the old data while another key loads
}

export function asApiError(failure: unknown): ApiError {
  if (failure instanceof ApiError) return failure;
  const what = failure instanceof Error ? failure.message : String(failure);
  return new ApiError(-1, `The page could not read the answer: ${what}`, 'Reload the page.');
}

interface Held<T> {
  key: string;
  data: T | undefined;
  error: ApiError | undefined;
}

// Milliseconds after which something coarser is asked for, where there is such a thing.
const patience = 250;

// Loads what `key` stands for, and again when the stream says that it changed. A null key loads nothing. Where the first
// answer takes long, as of a large store that is not in memory, `coarse` loads something to show until it is there.
export function useResource<T>(
  key: string | null,
  load: (signal: AbortSignal) => Promise<T>,
  freshness: Freshness = {},
  coarse?: (signal: AbortSignal) => Promise<T>,
): Resource<T> {
  const [held, setHeld] = useState<Held<T>>({ key: '', data: undefined, error: undefined });
  const [loading, setLoading] = useState(false);
  const latest = useRef({ load, freshness, coarse });
  latest.current = { load, freshness, coarse };
  const again = useRef<() => void>(() => undefined);

  useEffect(() => {
    if (key === null) return;
    let answered = false;
    const showCoarse = (signal: AbortSignal) => latest.current.coarse?.(signal).then(
      (data) => answered || signal.aborted || setHeld({ key, data, error: undefined }),
      () => undefined, // what goes wrong is told by the whole
    );
    const pump = new Pump(latest.current.freshness.pause ?? 1000, async (signal) => {
      setLoading(true);
      const timer = answered ? undefined : setTimeout(() => answered || signal.aborted || void showCoarse(signal), patience);
      try {
        const data = await latest.current.load(signal);
        answered = true;
        if (!signal.aborted) setHeld({ key, data, error: undefined });
      } catch (failure) {
        answered = true;
        if (signal.aborted) return;
        const error = asApiError(failure);
        setHeld((before) => ({ key, data: before.key === key ? before.data : undefined, error }));
      } finally {
        clearTimeout(timer);
        if (!signal.aborted) setLoading(false);
      }
    });
    again.current = () => pump.ask();
    pump.ask();
    const stop = live.listen({
      change: (change) => {
        const { run, kinds, anyRun } = latest.current.freshness;
        if (!anyRun && change.run !== run) return;
        if (!kinds || change.kinds.some((kind) => kinds.includes(kind))) pump.ask();
      },
      runs: () => latest.current.freshness.anyRun && pump.ask(),
      resync: () => pump.ask(),
    });
    return () => {
      stop();
      pump.stop();
    };
  }, [key]);

  const reload = useCallback(() => again.current(), []);
  const current = held.key === key || (freshness.keep && key !== null);
  return {
    data: current ? held.data : undefined,
    error: held.key === key ? held.error : undefined,
    loading: loading || (key !== null && held.key !== key),
    reload,
  };
}

export interface Metrics {
  series: Record<string, SeriesByName>; // by run
  error: ApiError | undefined;
  loading: boolean;
}

const pointsPerCurve = 2000;

// Curves of several runs, growing by increments.
export function useMetrics(runs: string[], names: string[]): Metrics {
  const [series, setSeries] = useState<Record<string, SeriesByName>>({});
  const [error, setError] = useState<ApiError>();
  const namesKey = names.join(',');
  const feeds = useRef(new Map<string, MetricsFeed>());

  useEffect(() => {
    const held = feeds.current;
    return () => {
      held.forEach((feed) => feed.stop());
      held.clear();
    };
  }, [namesKey]);

  useEffect(() => {
    const held = feeds.current;
    for (const [id, feed] of held) {
      if (runs.includes(id)) continue;
      feed.stop();
      held.delete(id);
    }
    for (const id of runs) {
      if (held.has(id)) continue;
      const feed = new MetricsFeed(id, names, pointsPerCurve, {
        changed: (all) => {
          setError(undefined);
          setSeries((before) => ({ ...before, [id]: all }));
        },
        failed: (failure) => setError(asApiError(failure)),
      });
      held.set(id, feed);
      feed.start();
    }
  }, [runs.join(','), namesKey]);

  return { series, error, loading: !error && runs.some((id) => series[id] === undefined) };
}

export function useRuns() {
  const { data, ...rest } = useResource('runs', (signal) => api.runs(signal), { anyRun: true, pause: 1500 });
  return { ...rest, data: data?.runs, problems: data?.problems ?? [] };
}

// What the server is, asked once for all who want to know, and again after a lost connection: it may be another one.
let serverInfo: ServerInfo | undefined;
let serverAsked = false;
const serverWatchers = new Set<(info: ServerInfo) => void>();

function askServer(): void {
  serverAsked = true;
  api.server().then((info) => {
    serverInfo = info;
    serverWatchers.forEach((watcher) => watcher(info));
  }, () => undefined); // the bar across the page says that it does not answer
}

export function useServer(): ServerInfo | undefined {
  const [info, setInfo] = useState(serverInfo);
  useLayoutEffect(() => {
    serverWatchers.add(setInfo);
    if (!serverAsked) {
      live.listen({ resync: askServer });
      askServer();
    }
    return () => {
      serverWatchers.delete(setInfo);
    };
  }, []);
  return info;
}

export function useCanChange(): boolean {
  return Boolean(useServer()?.change_token);
}

export function useRun(id: string) {
  return useResource(`run ${id}`, (signal) => api.run(id, signal), {
    run: id, kinds: ['metrics', 'status', 'alerts', 'changes'], pause: 1500,
  });
}

export function useLiveState(): { state: LiveState; retryAt: number } {
  const [, redraw] = useState(0);
  // Not useEffect, which waits for a frame: the stream may open before it, and nobody would be told.
  useLayoutEffect(() => live.watchState(() => redraw((count) => count + 1)), []);
  return { state: live.state, retryAt: live.retryAt };
}

// The time, in unix seconds, anew every so often.
export function useNow(every: number): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now() / 1000), every);
    return () => window.clearInterval(timer);
  }, [every]);
  return now;
}

// A choice that outlives the page, where the browser lets it.
export function useRemembered(name: string, initial: string): [string, (value: string) => void] {
  const key = `quaver.${name}`;
  const first = useMemo(() => recall(key) ?? initial, [key]);
  const [value, setValue] = useState(first);
  return [value, (next) => {
    remember(key, next);
    setValue(next);
  }];
}

// A form that a button opens: the focus goes back to the button when it closes. It goes with the drawing, not a frame
// later: by then, on a busy machine, the user types elsewhere.
export function useForm<T extends HTMLElement>(): { editing: boolean; setEditing: (editing: boolean) => void; opener: RefObject<T> } {
  const [editing, setEditing] = useState(false);
  const opener = useRef<T>(null);
  const was = useRef(false);
  useLayoutEffect(() => {
    if (was.current && !editing) (opener.current?.querySelector('button') ?? opener.current)?.focus();
    was.current = editing;
  }, [editing]);
  return { editing, setEditing, opener };
}

// The element's width, followed as it changes.
export function useWidth<T extends HTMLElement>(): [(element: T | null) => void, number] {
  const [width, setWidth] = useState(0);
  const observer = useRef<ResizeObserver>();
  const attach = useCallback((element: T | null) => {
    observer.current?.disconnect();
    if (!element) return;
    setWidth(Math.floor(element.clientWidth));
    observer.current = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    observer.current.observe(element);
  }, []);
  return [attach, width];
}
