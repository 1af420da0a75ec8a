// Backoff is how long to wait before the next attempt: doubled each time up to a limit, and spread, so that
// a server that comes back is not met by all browsers at once.
export class Backoff {
  private attempts = 0;

  constructor(private readonly first = 500, private readonly limit = 30_000, private readonly random: () => number = Math.random) {}

  next(): number {
    const full = Math.min(this.limit, this.first * 2 ** Math.min(this.attempts++, 20));
    return full / 2 + this.random() * full / 2;
  }

  reset(): void {
    this.attempts = 0;
  }
}
