import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Backoff } from "../src/data/backoff";
import { Coalesce } from "../src/data/coalesce";
import { lines } from "../src/data/lines";
import type { FromStream, ToStream } from "../src/data/protocol";
import { Streams, silence, type Surroundings } from "../src/data/streams";
import { Subscription } from "../src/data/subscription";

// A server that does what a test says on each stream, over real connections.
interface Opened {
  asked: [string, string][]; // slot and path
  write(line: unknown): void;
  raw(text: string): void;
  cut(): void;
  closed: Promise<void>;
}

let server: Server, base: string, opened: Opened[], waiting: ((one: Opened) => void)[], answer: ((request: IncomingMessage, response: ServerResponse) => boolean) | undefined;

beforeEach(async () => {
  opened = [];
  waiting = [];
  answer = undefined;
  server = createServer((request, response) => {
    if (answer?.(request, response) === true) return;
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    response.flushHeaders();
    const asked = new URL(request.url ?? "", "http://x").searchParams.getAll("s").map((s): [string, string] => [s.slice(0, s.indexOf(" ")), s.slice(s.indexOf(" ") + 1)]);
    const one: Opened = {
      asked, write: (line) => void response.write(JSON.stringify(line) + "\n"), raw: (text) => void response.write(text),
      cut: () => response.destroy(), closed: new Promise((resolve) => response.on("close", resolve)),
    };
    const next = waiting.shift();
    if (next === undefined) opened.push(one);
    else next(one);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterEach(async () => {
  for (const streams of all.splice(0)) streams.end("the test is over");
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const nextStream = () => new Promise<Opened>((resolve) => {
  const one = opened.shift();
  if (one === undefined) waiting.push(resolve);
  else resolve(one);
});

class Tab {
  readonly got: FromStream[] = [];
  private readonly waiting: (() => void)[] = [];
  readonly say: (message: ToStream) => void;

  constructor(streams: Streams) {
    this.say = streams.attach((message) => {
      this.got.push(message);
      for (const wake of this.waiting.splice(0)) wake();
    });
  }

  async until<T extends FromStream["t"]>(t: T, match: (message: Extract<FromStream, { t: T }>) => boolean = () => true): Promise<Extract<FromStream, { t: T }>> {
    for (let from = 0; ;) {
      for (; from < this.got.length; from++) {
        const message = this.got[from] as Extract<FromStream, { t: T }>;
        if (message.t === t && match(message)) return message;
      }
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
  }
}

function surroundings(more: Partial<Surroundings> = {}): Surroundings {
  return {
    fetch: (url, signal) => fetch(base + url, { signal }), now: () => Date.now(), later: (call, ms) => setTimeout(call, ms),
    cancel: (timer) => clearTimeout(timer as NodeJS.Timeout), random: () => 0, ...more,
  };
}

const pod = (name: string, resourceVersion: string) => ({ type: "MODIFIED", object: { kind: "Pod", metadata: { name, resourceVersion } } });
const bookmark = (resourceVersion: string) => ({ type: "BOOKMARK", object: { kind: "Pod", metadata: { resourceVersion, annotations: { "k8s.io/initial-events-end": "true" } } } });
const watchPath = "/fleet/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

const all: Streams[] = [];

function made(around = surroundings()): Streams {
  const streams = new Streams(around);
  all.push(streams);
  return streams;
}

function logIn(streams = made(surroundings()), user = "ann"): Tab {
  const tab = new Tab(streams);
  tab.say({ t: "user", user });
  return tab;
}

describe("the stream", () => {
  test("is not opened before somebody is logged in", async () => {
    const tab = new Tab(made(surroundings()));
    tab.say({ t: "subscribe", id: 1, path: "/query/v1/members" });
    await new Promise((resolve) => setTimeout(resolve, 80));
    expect(opened).toHaveLength(0);
    tab.say({ t: "user", user: "ann" });
    expect((await nextStream()).asked.map(([, path]) => path)).toEqual(["/query/v1/members"]);
  });

  test("is one for all tabs, and each has its own values", async () => {
    const streams = made(surroundings());
    const one = logIn(streams), two = logIn(streams);
    one.say({ t: "subscribe", id: 1, path: "/query/v1/members" });
    two.say({ t: "subscribe", id: 1, path: "/query/v1/count?resource=pods" });
    const stream = await nextStream();
    expect(stream.asked.map(([, path]) => path)).toEqual(["/query/v1/members", "/query/v1/count?resource=pods"]);
    stream.write({ id: stream.asked[1]?.[0], value: { total: 3 } });
    expect((await two.until("value")).value).toEqual({ total: 3 });
    expect(one.got.some((message) => message.t === "value")).toBe(false);
  });

  test("is replaced when what is wanted changes, and a watch goes on where it was", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: watchPath });
    const first = await nextStream();
    const [slot] = first.asked[0] ?? [""];
    first.write({ id: slot, event: pod("a", "3") });
    first.write({ id: slot, event: bookmark("5") });
    first.write({ id: slot, event: pod("a", "7") });
    await tab.until("events", (message) => message.resourceVersion === "7");
    tab.say({ t: "subscribe", id: 2, path: "/query/v1/members" });
    const second = await nextStream();
    expect(second.asked.map(([, path]) => path)).toEqual(["/fleet/api/v1/pods?watch=true&resourceVersion=7", "/query/v1/members"]);
    await first.closed;
    second.write({ id: second.asked[0]?.[0], event: pod("a", "7") }); // once more: not passed on
    second.write({ id: second.asked[0]?.[0], event: pod("b", "8") });
    const last = await tab.until("events", (message) => message.resourceVersion === "8");
    expect(last.events).toEqual([pod("b", "8")]);
    expect(tab.got.filter((message) => message.t === "reset")).toHaveLength(1); // of the first
  });

  test("resumes from the version that a tab has kept", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: watchPath, resourceVersion: "42" });
    expect((await nextStream()).asked[0]?.[1]).toBe("/fleet/api/v1/pods?watch=true&resourceVersion=42");
    expect(tab.got.some((message) => message.t === "reset")).toBe(false);
  });

  test("that broke during the first events starts over", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: watchPath });
    const first = await nextStream();
    first.write({ id: first.asked[0]?.[0], event: pod("a", "9") });
    await tab.until("events");
    first.cut();
    await tab.until("link", (message) => message.state === "lost");
    const second = await nextStream();
    expect(second.asked[0]?.[1]).toBe(watchPath);
    await tab.until("link", () => tab.got.filter((message) => message.t === "reset").length === 2);
  });

  test("says that it is lost, and since when, and comes back", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: "/query/v1/members" });
    (await nextStream()).cut();
    const lost = await tab.until("link", (message) => message.state === "lost");
    expect(lost.at).toBeGreaterThan(0);
    const second = await nextStream();
    second.write({ beat: "now" });
    await tab.until("link", (message) => message.state === "live" && message.at > lost.at - 1);
  });

  test("that says nothing for too long is given up", async () => {
    const tab = logIn(made(surroundings({ later: (call, ms) => setTimeout(call, ms === silence ? 60 : Math.min(ms, 20)) })));
    tab.say({ t: "subscribe", id: 1, path: "/query/v1/members" });
    const first = await nextStream();
    await first.closed;
    await tab.until("link", (message) => message.state === "lost");
    await nextStream();
  });

  test("that expired is told, and not resumed", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: watchPath, resourceVersion: "1" });
    const first = await nextStream();
    first.write({ id: first.asked[0]?.[0], error: { kind: "Status", code: 410, message: "too old" } });
    await tab.until("reset");
    expect((await nextStream()).asked[0]?.[1]).toBe(watchPath);
  });

  test("an error that asking again does not change ends one subscription only", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: "/query/v1/plans/x" });
    tab.say({ t: "subscribe", id: 2, path: "/query/v1/members" });
    const first = await nextStream();
    first.write({ id: first.asked[0]?.[0], error: { kind: "Status", code: 403, message: "no" } });
    expect(await tab.until("error")).toMatchObject({ id: 1, final: true, status: { code: 403 } });
    tab.say({ t: "subscribe", id: 3, path: "/query/v1/stops" });
    expect((await nextStream()).asked.map(([, path]) => path)).toEqual(["/query/v1/members", "/query/v1/stops"]);
  });

  test("an answer that may be outdated is said to be, and asked again by the server", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: "/query/v1/members" });
    const first = await nextStream();
    const id = first.asked[0]?.[0];
    first.write({ id, value: 1 });
    first.write({ id, retry: { kind: "Status", code: 503, message: "busy" } });
    expect(await tab.until("error")).toMatchObject({ id: 1, final: false, status: { code: 503 } });
    first.write({ id, value: 2 });
    expect((await tab.until("value", (message) => message.value === 2)).id).toBe(1);
    expect(opened).toHaveLength(0);
  });

  test("what fails for a time does not hold up what is asked for now", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: "/query/v1/members" });
    const first = await nextStream();
    tab.say({ t: "subscribe", id: 2, path: "/query/v1/stops" });
    first.write({ id: first.asked[0]?.[0], error: { kind: "Status", code: 503, message: "busy" } });
    const began = Date.now();
    expect((await nextStream()).asked.map(([, path]) => path)).toEqual(["/query/v1/members", "/query/v1/stops"]);
    expect(Date.now() - began).toBeLessThan(1_000); // not after the 5 s of what failed
  });

  test("a tab is told of bookmarks, so that it can resume from there", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: watchPath, resourceVersion: "5" });
    const first = await nextStream();
    const mark = (resourceVersion: string) => first.write({ id: first.asked[0]?.[0], event: { type: "BOOKMARK", object: { kind: "Pod", metadata: { resourceVersion } } } });
    mark("70");
    await tab.until("events", (message) => message.resourceVersion === "70");
    mark("90");
    expect((await tab.until("events", (message) => message.resourceVersion === "90")).events).toEqual([]);
  });

  test("a watch that ended is opened again", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: watchPath, resourceVersion: "5" });
    const first = await nextStream();
    first.write({ id: first.asked[0]?.[0], event: pod("a", "6") });
    first.write({ id: first.asked[0]?.[0], end: true });
    expect((await nextStream()).asked[0]?.[1]).toBe("/fleet/api/v1/pods?watch=true&resourceVersion=6");
  });

  test("ends for all tabs with the session", async () => {
    const streams = made(surroundings());
    const one = logIn(streams), two = logIn(streams);
    one.say({ t: "subscribe", id: 1, path: "/query/v1/members" });
    const stream = await nextStream();
    stream.write({ session: { ended: "the token has expired" } });
    expect((await two.until("ended")).why).toBe("the token has expired");
    await one.until("ended");
    await stream.closed;
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(opened).toHaveLength(0);
  });

  test("ends when another user logs in, for the tabs that have not said so", async () => {
    const streams = made(surroundings());
    const one = logIn(streams), two = logIn(streams);
    one.say({ t: "subscribe", id: 1, path: "/query/v1/members" });
    const stream = await nextStream();
    two.say({ t: "user", user: "bob" });
    await one.until("ended");
    await stream.closed;
    expect(two.got.some((message) => message.t === "ended")).toBe(false);
  });

  test("ends when the server does not know the caller", async () => {
    answer = (_, response) => {
      response.writeHead(401, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ kind: "Status", code: 401, message: "Unauthorized" }));
      return true;
    };
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: "/query/v1/members" });
    await tab.until("ended");
  });

  test("is closed when no tab wants anything", async () => {
    const tab = logIn();
    tab.say({ t: "subscribe", id: 1, path: "/query/v1/members" });
    const stream = await nextStream();
    tab.say({ t: "unsubscribe", id: 1 });
    await stream.closed;
    await tab.until("link", (message) => message.state === "idle");
  });

  test("more than it can carry is an error of what came last", async () => {
    const tab = logIn();
    for (let id = 1; id <= 65; id++) tab.say({ t: "subscribe", id, path: `/query/v1/count?resource=pods&namespace=n${id}` });
    expect((await nextStream()).asked).toHaveLength(64);
    expect(await tab.until("error")).toMatchObject({ id: 65, final: false });
  });
});

describe("a subscription", () => {
  test("has no version before the first events are complete", () => {
    const one = new Subscription(1, watchPath);
    expect(one.event({ type: "ADDED", object: { metadata: { name: "a", resourceVersion: "99" } } })).toBe(true);
    expect(one.resourceVersion).toBeUndefined();
    one.event(bookmark("50"));
    expect([one.synced, one.resourceVersion]).toEqual([true, "50"]);
  });
  test("of Tables and of violations is known by what they are about", () => {
    const one = new Subscription(1, "/query/v1/violations?watch=true", "5");
    one.event({ type: "MODIFIED", object: { policy: "p", subject: { member: "f/a", kind: "Pod", name: "x" }, revision: "6" } });
    one.event({ type: "MODIFIED", object: { policy: "p", subject: { member: "f/a", kind: "Pod", name: "x" }, revision: "7" } });
    one.event({ type: "MODIFIED", object: { policy: "p", subject: { member: "f/b", kind: "Pod", name: "x" }, revision: "8" } });
    expect(one.pending.size).toBe(2);
    one.event({ type: "BOOKMARK", object: { resourceVersion: "20", initialEventsEnd: true } });
    expect(one.resourceVersion).toBe("20");
  });
});

describe("coalescing", () => {
  const event = (n: number) => ({ type: "MODIFIED", object: n });
  test("passes the first at once and then the last of each interval", () => {
    const coalesce = new Coalesce(250);
    coalesce.add("a", event(1));
    expect(coalesce.take(1000)).toEqual([event(1)]);
    coalesce.add("a", event(2));
    coalesce.add("a", event(3));
    coalesce.add("b", event(4));
    expect(coalesce.take(1016)).toEqual([event(4)]);
    expect(coalesce.next()).toBe(1250);
    expect(coalesce.take(1250)).toEqual([event(3)]);
    expect(coalesce.next()).toBeUndefined();
  });
  test("a row that never rests changes four times a second", () => {
    const coalesce = new Coalesce(250);
    let passed = 0;
    for (let now = 0; now < 10_000; now += 10) {
      coalesce.add("a", event(now));
      passed += coalesce.take(now).length;
    }
    expect(passed).toBe(40);
  });
});

test("waits grow up to a limit, and are spread", () => {
  const least = new Backoff(500, 30_000, () => 0), most = new Backoff(500, 30_000, () => 1);
  expect(Array.from({ length: 8 }, () => least.next())).toEqual([250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
  expect(Array.from({ length: 8 }, () => most.next())).toEqual([500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
  least.reset();
  expect(least.next()).toBe(250);
});

test("lines are put together from pieces, also in the middle of a character", async () => {
  const bytes = new TextEncoder().encode('{"a":"ü"}\n\n{"b":2}\n{"cut');
  const body = new ReadableStream<Uint8Array>({ start(controller) { for (const byte of bytes) controller.enqueue(Uint8Array.of(byte)); controller.close(); } });
  const got: unknown[] = [];
  for await (const line of lines(body)) got.push(line);
  expect(got).toEqual([{ a: "ü" }, { b: 2 }]);
});
