// Streams holds the browser's one stream to the server, for all tabs that are attached to it. It reopens it with
// what is subscribed to now, resumes watches where they were, and ends everything when the session does.
import { statusOf, isStatus } from "./api";
import { Backoff } from "./backoff";
import { lines } from "./lines";
import { maxSubscriptions, type FromStream, type LinkState, type StreamEvent, type ToStream } from "./protocol";
import { Subscription } from "./subscription";
import type { Status } from "./types";

export interface Surroundings {
  fetch(url: string, signal: AbortSignal): Promise<Response>;
  now(): number;
  later(call: () => void, milliseconds: number): unknown;
  cancel(timer: unknown): void;
  random(): number;
}

export const browser: Surroundings = {
  fetch: (url, signal) => fetch(url, { signal, credentials: "same-origin", cache: "no-store", headers: { Accept: "application/x-ndjson" } }),
  now: () => Date.now(),
  later: (call, milliseconds) => setTimeout(call, milliseconds),
  cancel: (timer) => clearTimeout(timer as number),
  random: () => Math.random(),
};

export const silence = 25_000; // the server says something every 10 s
const gather = 20; // subscriptions that come together are opened together
const perFrame = 16;
const retryOne = 5_000;

interface Tab {
  send(message: FromStream): void;
  subscriptions: Map<number, Subscription>;
}

interface Line {
  id?: string;
  event?: StreamEvent;
  value?: unknown;
  error?: Status;
  retry?: Status; // the answer that was sent may be outdated: it is asked again
  end?: boolean;
  beat?: string;
  session?: { ended: string };
}

export class Streams {
  private readonly tabs = new Set<Tab>();
  private readonly backoff: Backoff;
  private user: string | undefined;
  private current: AbortController | undefined;
  private opening: AbortController | undefined;
  private reopenTimer: unknown;
  private reopenAt = 0;
  private flushTimer: unknown;
  private watchdog: unknown;
  private heard = 0;
  private state: LinkState = "idle";
  private bySlot = new Map<string, [Tab, Subscription]>();

  constructor(private readonly around: Surroundings = browser) {
    this.backoff = new Backoff(500, 30_000, around.random);
  }

  // attach begins with a tab; what it says is passed to the function returned.
  attach(send: (message: FromStream) => void): (message: ToStream) => void {
    const tab: Tab = { send, subscriptions: new Map() };
    this.tabs.add(tab);
    send({ t: "link", state: this.state, at: this.heard });
    return (message) => this.receive(tab, message);
  }

  // end stops everything: another user, or none.
  end(why: string, but?: Tab): void {
    this.close();
    this.user = undefined;
    for (const tab of this.tabs) {
      if (tab === but) continue; // it is the one that has said so
      tab.subscriptions.clear();
      tab.send({ t: "ended", why });
    }
    this.setState("idle");
  }

  private receive(tab: Tab, message: ToStream): void {
    switch (message.t) {
      case "user":
        if (this.user !== undefined && this.user !== message.user) this.end(message.user === "" ? "you have logged out" : "another user has logged in", tab);
        this.user = message.user === "" ? undefined : message.user;
        this.reopen(0);
        return;
      case "subscribe":
        tab.subscriptions.set(message.id, new Subscription(message.id, message.path, message.resourceVersion));
        this.reopen(gather);
        return;
      case "unsubscribe":
        if (tab.subscriptions.delete(message.id)) this.reopen(gather);
        return;
      case "bye":
        this.tabs.delete(tab);
        if (tab.subscriptions.size > 0) this.reopen(gather);
    }
  }

  private setState(state: LinkState): void {
    if (state === this.state && state !== "live") return;
    this.state = state;
    for (const tab of this.tabs) tab.send({ t: "link", state, at: this.heard });
  }

  // reopen opens the stream again after a time. What is to be opened sooner stays so.
  private reopen(after: number): void {
    const at = this.around.now() + after;
    if (this.reopenTimer !== undefined) {
      if (this.reopenAt <= at) return;
      this.around.cancel(this.reopenTimer);
    }
    this.reopenAt = at;
    this.reopenTimer = this.around.later(() => {
      this.reopenTimer = undefined;
      void this.open();
    }, after);
  }

  private close(): void {
    if (this.reopenTimer !== undefined) this.around.cancel(this.reopenTimer);
    if (this.watchdog !== undefined) this.around.cancel(this.watchdog);
    this.reopenTimer = this.watchdog = undefined;
    this.current?.abort();
    this.opening?.abort();
    this.current = this.opening = undefined;
    this.bySlot.clear();
  }

  // wanted is what to ask for, by the id that it has on the stream.
  private wanted(): Map<string, [Tab, Subscription]> {
    const wanted = new Map<string, [Tab, Subscription]>();
    for (const tab of this.tabs) {
      for (const subscription of tab.subscriptions.values()) {
        if (subscription.final) continue;
        if (wanted.size === maxSubscriptions) {
          this.fail(tab, subscription, { kind: "Status", code: 429, message: `more than ${maxSubscriptions} lists are open in this browser; close or hide some` }, false);
          continue;
        }
        wanted.set(wanted.size.toString(36), [tab, subscription]);
      }
    }
    return wanted;
  }

  private async open(): Promise<void> {
    this.opening?.abort();
    const wanted = this.wanted();
    if (this.user === undefined || wanted.size === 0) {
      this.close();
      this.setState("idle");
      return;
    }
    const abort = this.opening = new AbortController();
    if (this.current === undefined && this.state !== "lost") this.setState("connecting");
    let query = "watch=true";
    for (const [slot, [, subscription]] of wanted) {
      query += "&s=" + encodeURIComponent(`${slot} ${subscription.address()}`);
    }
    try {
      const response = await this.around.fetch(`/query/v1/stream?${query}`, abort.signal);
      if (abort.signal.aborted) return;
      if (!response.ok || response.body === null) {
        await this.refused(response);
        return;
      }
      this.takeOver(abort, wanted);
      for await (const line of lines(response.body)) {
        if (abort.signal.aborted) return;
        this.line(line as Line);
      }
    } catch {
      // the connection is gone, which is what follows
    }
    if (abort.signal.aborted) return;
    this.lost();
  }

  // takeOver makes the stream that was opened last the one that counts.
  private takeOver(abort: AbortController, wanted: Map<string, [Tab, Subscription]>): void {
    this.current?.abort();
    this.current = abort;
    this.opening = undefined;
    this.bySlot = wanted;
    for (const [tab, subscription] of wanted.values()) {
      if (!subscription.watch || subscription.synced) continue;
      subscription.restart();
      tab.send({ t: "reset", id: subscription.id });
    }
    this.alive();
  }

  private async refused(response: Response): Promise<void> {
    const status = await statusOf(response);
    if (status.code === 401) {
      this.end("your session has ended");
      return;
    }
    if (status.code >= 400 && status.code < 500 && status.code !== 429) {
      for (const tab of this.tabs) for (const s of tab.subscriptions.values()) if (!s.final) this.fail(tab, s, status, status.code !== 404);
    }
    this.lost();
  }

  private lost(): void {
    this.current?.abort();
    this.current = this.opening = undefined;
    if (this.watchdog !== undefined) this.around.cancel(this.watchdog);
    this.watchdog = undefined;
    this.setState("lost");
    this.reopen(this.backoff.next());
  }

  private alive(): void {
    this.heard = this.around.now();
    this.setState("live");
    if (this.watchdog !== undefined) this.around.cancel(this.watchdog);
    this.watchdog = this.around.later(() => this.lost(), silence);
  }

  private line(line: Line): void {
    if (line.session !== undefined) {
      this.end(line.session.ended);
      return;
    }
    if (line.beat !== undefined || this.around.now() - this.heard > 1_000) this.alive();
    if (line.beat !== undefined) this.backoff.reset();
    const found = line.id === undefined ? undefined : this.bySlot.get(line.id);
    if (found === undefined) return;
    const [tab, subscription] = found;
    if (!tab.subscriptions.has(subscription.id)) return;
    if (line.error !== undefined) this.failed(tab, subscription, line.error);
    else if (line.retry !== undefined) this.fail(tab, subscription, line.retry, false);
    else if (line.end === true) this.reopen(gather);
    else if (line.event !== undefined) this.event(tab, subscription, line.event);
    else if ("value" in line) tab.send({ t: "value", id: subscription.id, value: line.value, at: this.around.now() });
  }

  private event(tab: Tab, subscription: Subscription, event: StreamEvent): void {
    if (event.type === "ERROR") {
      const status: Status = isStatus(event.object) ? event.object : { kind: "Status", code: 500, message: "the watch failed" };
      this.failed(tab, subscription, status);
      return;
    }
    const wasSynced = subscription.synced;
    if (!subscription.event(event)) return;
    this.scheduleFlush(subscription.synced !== wasSynced ? 0 : perFrame);
  }

  private failed(tab: Tab, subscription: Subscription, status: Status): void {
    if (status.code === 410) { // what it was at is gone: start over
      subscription.restart();
      tab.send({ t: "reset", id: subscription.id });
      this.reopen(gather);
      return;
    }
    const final = status.code < 500 && status.code !== 429;
    this.fail(tab, subscription, status, final);
    if (!final) this.reopen(retryOne);
  }

  private fail(tab: Tab, subscription: Subscription, status: Status, final: boolean): void {
    subscription.final = final;
    tab.send({ t: "error", id: subscription.id, status, final });
  }

  private scheduleFlush(after: number): void {
    if (this.flushTimer !== undefined) return;
    this.flushTimer = this.around.later(() => {
      this.flushTimer = undefined;
      this.flush();
    }, after);
  }

  private flush(): void {
    const now = this.around.now();
    let next: number | undefined;
    for (const tab of this.tabs) {
      for (const subscription of tab.subscriptions.values()) {
        if (!subscription.watch) continue;
        this.flushOne(tab, subscription, now);
        const at = subscription.pending.next();
        if (at !== undefined && (next === undefined || at < next)) next = at;
      }
    }
    if (next !== undefined) this.scheduleFlush(Math.max(perFrame, next - now));
  }

  private flushOne(tab: Tab, subscription: Subscription, now: number): void {
    const events = subscription.pending.take(now);
    const told = subscription.told;
    const version = subscription.pending.size === 0 ? subscription.resourceVersion : undefined;
    // A bookmark is news, too: who resumes from an old version has to start over.
    if (events.length === 0 && subscription.synced === told && (version === undefined || version === subscription.toldVersion)) return;
    subscription.told = subscription.synced;
    if (version !== undefined) subscription.toldVersion = version;
    tab.send({
      t: "events", id: subscription.id, events, synced: subscription.synced, at: now,
      // what is still held back would be missed by who resumes from here
      ...(version !== undefined ? { resourceVersion: version } : {}),
    });
  }
}
