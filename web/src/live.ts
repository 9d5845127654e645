// One event stream for the whole page. Listeners hear which run changed; after a lost connection they hear `resync`,
// because what happened meanwhile was not told.
import type { LiveChange } from './types';

export type LiveState = 'connecting' | 'live' | 'lost';

export interface Listener {
  change?: (change: LiveChange) => void;
  runs?: () => void;
  resync?: () => void;
}

const firstDelay = 1000;
const longestDelay = 30000;
const patience = 5000;

// Doubles up to half a minute, with a spread so that many pages do not return at once.
export function backoff(attempt: number, random: number): number {
  const delay = Math.min(longestDelay, firstDelay * Math.pow(2, attempt));
  return delay * (0.75 + 0.5 * random);
}

class Live {
  private source: EventSource | undefined;
  private timer: number | undefined;
  private attempt = 0;
  private missed = false;
  private readonly listeners = new Set<Listener>();
  private readonly watchers = new Set<() => void>();
  state: LiveState = 'connecting';
  retryAt = 0; // when the next attempt is made, as of Date.now()

  start(): void {
    this.connect();
    window.addEventListener('online', () => this.retryNow());
    // A page in the bfcache or a sleeping laptop may hold a dead stream.
    window.addEventListener('pageshow', (event) => {
      if (event.persisted) this.retryNow();
    });
    document.addEventListener('visibilitychange', () => {
      if (document.visibilityState === 'visible' && this.state === 'lost') this.retryNow();
    });
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  watchState(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  retryNow(): void {
    if (this.state === 'live' && this.source?.readyState === EventSource.OPEN) return;
    this.attempt = 0;
    this.connect();
  }

  private connect(): void {
    window.clearTimeout(this.timer);
    this.source?.close();
    const source = new EventSource('api/events');
    this.source = source;
    // A request that is never answered is no error to the browser: it would say "connecting" for ever.
    this.timer = window.setTimeout(() => this.failed(source), patience);
    source.onopen = () => this.opened();
    source.onerror = () => this.failed(source);
    source.addEventListener('change', (event) => this.heard(event as MessageEvent<string>));
    source.addEventListener('runs', () => this.listeners.forEach((listener) => listener.runs?.()));
  }

  private opened(): void {
    window.clearTimeout(this.timer);
    this.attempt = 0;
    this.set('live');
    if (this.missed) this.listeners.forEach((listener) => listener.resync?.());
    this.missed = false;
  }

  // The browser would retry by itself at a fixed pace, and not at all after a 503: this does both.
  private failed(source: EventSource): void {
    if (source !== this.source) return;
    window.clearTimeout(this.timer);
    source.close();
    this.missed = true;
    const delay = backoff(this.attempt++, Math.random());
    this.retryAt = Date.now() + delay;
    this.timer = window.setTimeout(() => this.connect(), delay);
    this.set('lost');
  }

  private heard(event: MessageEvent<string>): void {
    let change: LiveChange;
    try {
      change = JSON.parse(event.data) as LiveChange;
    } catch {
      return; // one line that cannot be read is not worth the stream
    }
    if (typeof change.run !== 'string' || !Array.isArray(change.kinds)) return;
    this.listeners.forEach((listener) => listener.change?.(change));
  }

  private set(state: LiveState): void {
    this.state = state;
    this.watchers.forEach((watcher) => watcher());
  }
}

export const live = new Live();
