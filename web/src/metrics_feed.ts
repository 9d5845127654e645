// The curves of one run: loaded once, then only what is new.
import { api } from './api';
import { live } from './live';
import { Pump } from './pump';
import { appendAll, lastStep } from './series';
import type { SeriesByName } from './types';

export interface FeedEvents {
  changed: (series: SeriesByName) => void;
  failed: (failure: unknown) => void;
}

export class MetricsFeed {
  private series: SeriesByName | undefined;
  private rewound = false;
  private readonly pump: Pump;
  private stopListening: () => void = () => undefined;

  constructor(
    private readonly run: string,
    private readonly names: string[],
    private readonly points: number,
    private readonly events: FeedEvents,
  ) {
    this.pump = new Pump(700, (signal) => this.fetch(signal));
  }

  start(): void {
    this.stopListening = live.listen({
      change: (change) => {
        if (change.run !== this.run || !change.kinds.includes('metrics')) return;
        if (this.series && change.step < lastStep(this.series)) this.rewound = true;
        this.pump.ask();
      },
      resync: () => {
        this.rewound = true; // the run may have been rewound meanwhile: take it whole
        this.pump.ask();
      },
    });
    this.pump.ask();
  }

  stop(): void {
    this.stopListening();
    this.pump.stop();
  }

  private async fetch(signal: AbortSignal): Promise<void> {
    try {
      const whole = this.series === undefined || this.rewound;
      // The last step is asked for again: its evaluation may have been recorded after its loss.
      const after = whole || !this.series ? 0 : Math.max(0, lastStep(this.series) - 1);
      this.rewound = false;
      const more = await api.metrics(this.run, this.names, after, this.points, signal);
      this.series = whole ? more : appendAll(this.series ?? {}, more, this.points);
      if (!signal.aborted) this.events.changed(this.series);
    } catch (failure) {
      if (!signal.aborted) this.events.failed(failure);
    }
  }
}
