// Runs a task when asked, never two at once, and not more often than `pause`: however fast events come, the last one
// is followed by a run.
export class Pump {
  private readonly controller = new AbortController();
  private running = false;
  private wanted = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly pause: number,
    private readonly task: (signal: AbortSignal) => Promise<void>,
  ) {}

  ask(): void {
    this.wanted = true;
    if (!this.running && this.timer === undefined) void this.run();
  }

  stop(): void {
    this.controller.abort();
    clearTimeout(this.timer);
  }

  private async run(): Promise<void> {
    this.wanted = false;
    this.running = true;
    await this.task(this.controller.signal);
    this.running = false;
    if (this.controller.signal.aborted) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      if (this.wanted) void this.run();
    }, this.pause);
  }
}
