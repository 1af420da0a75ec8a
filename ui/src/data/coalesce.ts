// Coalesce holds back what changes too often: each key is passed on at most once in an interval, with its last event.
import type { StreamEvent } from "./protocol";

export class Coalesce {
  private readonly waiting = new Map<string, StreamEvent>();
  private readonly passed = new Map<string, number>();

  constructor(private readonly interval: number) {}

  add(key: string, event: StreamEvent): void {
    this.waiting.delete(key); // so that the order is that of the last events
    this.waiting.set(key, event);
  }

  clear(): void {
    this.waiting.clear();
    this.passed.clear();
  }

  get size(): number {
    return this.waiting.size;
  }

  // take returns the events that may pass now.
  take(now: number): StreamEvent[] {
    for (const [key, at] of this.passed) {
      if (now - at < this.interval) break; // in order of time: the rest is younger
      this.passed.delete(key);
    }
    const out: StreamEvent[] = [];
    for (const [key, event] of this.waiting) {
      if (this.passed.has(key)) continue;
      this.waiting.delete(key);
      this.passed.set(key, now);
      out.push(event);
    }
    return out;
  }

  // next is when take has something again.
  next(): number | undefined {
    let least: number | undefined;
    for (const key of this.waiting.keys()) {
      const at = (this.passed.get(key) ?? -Infinity) + this.interval;
      if (least === undefined || at < least) least = at;
    }
    return least;
  }
}
