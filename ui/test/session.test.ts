import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { FromStream, ToStream } from "../src/data/protocol";

// The real modules of a tab, over real connections to a server that does what a test says. Of the browser there is what
// Node has, and here what it has not: a document, an address and its history, the events of a window, a SharedWorker.
type Answer = (request: IncomingMessage, response: ServerResponse, body: string) => void | Promise<void>;

let server: Server, base: string, on: Record<string, Answer>, asked: string[], answers: Promise<Response>[];
const real = globalThis.fetch, Channel = globalThis.BroadcastChannel;

const nobody = { user: "", groups: [], methods: ["token"], canWrite: false, cannotWriteWhy: "", expires: "", version: "v", hub: false };
const as = (user: string, more = {}) => ({ ...nobody, user, ...more });
const json = (value: unknown, code = 200): Answer => (_, response) => void response.writeHead(code, { "Content-Type": "application/json" }).end(JSON.stringify(value));
const refused = (code: number, message: string) => json({ kind: "Status", code, message }, code);

beforeEach(async () => {
  vi.resetModules();
  asked = [];
  on = { "GET /ui/session": json(nobody) };
  server = createServer((request, response) => {
    let body = "";
    request.on("data", (some: Buffer) => { body += some.toString(); }).on("end", () => {
      const what = `${request.method ?? ""} ${request.url?.split("?")[0] ?? ""}`;
      asked.push(what);
      void (on[what] ?? refused(404, `there is no ${what}`))(request, response, body);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  answers = [];
  vi.stubGlobal("fetch", (path: string, init?: RequestInit) => {
    const answer = real(base + path, init);
    answers.push(answer);
    return answer;
  });
  vi.stubGlobal("BroadcastChannel", class extends Channel {
    constructor(name: string) {
      super(name);
      channels.push(() => this.close()); // tabs of earlier tests are gone
    }
  });
  const page = new EventTarget(), shown = Object.assign(new EventTarget(), { hidden: false });
  vi.stubGlobal("document", shown);
  vi.stubGlobal("addEventListener", page.addEventListener.bind(page));
  vi.stubGlobal("dispatchEvent", page.dispatchEvent.bind(page));
  at("/ui/");
});

afterEach(async () => {
  dispatchEvent(new Event("pagehide")); // the tab says bye
  for (const end of channels.splice(0)) end();
  vi.unstubAllGlobals();
  vi.useRealTimers();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

function at(url: string): void {
  const here = new URL(url, "https://federator.example");
  vi.stubGlobal("location", { pathname: here.pathname, search: here.search, hash: here.hash, href: here.href, reload: () => undefined });
  vi.stubGlobal("history", { replaceState: (_: unknown, __: string, to: string) => at(to), pushState: () => undefined });
}

const channels: (() => void)[] = [];

// another is another tab of the browser: it hears what this one says, and says what a test has it say.
function another(): { heard: string[]; say(user: string): void } {
  const channel = new BroadcastChannel("federator-session"), heard: string[] = [];
  channel.onmessage = (event: MessageEvent<string>) => { heard.push(event.data); };
  return { heard, say: (user) => channel.postMessage(user) };
}

// tab loads the modules as a page does.
async function tab() {
  const session = await import("../src/data/session"), link = await import("../src/data/link");
  session.startSession();
  return { ...session, ...link };
}

const until = (check: () => void) => vi.waitFor(check, { timeout: 5_000, interval: 5 });

describe("the session", () => {
  test("is nobody's, then by a token somebody's, which other tabs hear of", async () => {
    on["POST /ui/session"] = (request, response, body) => json(as((JSON.parse(body) as { token: string }).token))(request, response, body);
    const other = another(), my = await tab();
    await until(() => expect(my.session.value?.user).toBe(""));
    await my.logIn("ann");
    expect(my.session.value?.user).toBe("ann");
    await until(() => expect(other.heard).toEqual(["ann"]));
  });

  test("is not made by a token that is refused", async () => {
    on["POST /ui/session"] = refused(401, "Unauthorized");
    const my = await tab();
    await until(() => expect(my.session.value?.user).toBe(""));
    await expect(my.logIn("x")).rejects.toMatchObject({ code: 401 });
    expect(my.session.value?.user).toBe("");
  });

  test("ends at log-out, also in other tabs, and is asked for again", async () => {
    on["GET /ui/session"] = json(as("ann"));
    on["DELETE /ui/session"] = (_, response) => {
      on["GET /ui/session"] = json(nobody);
      response.writeHead(204).end();
    };
    const my = await tab();
    await until(() => expect(my.session.value?.user).toBe("ann"));
    const other = another();
    await my.logOut();
    expect(my.session.value).toMatchObject({ user: "", canWrite: false });
    expect(my.endedWhy.value).toBe("");
    await until(() => expect(other.heard).toContain(""));
  });

  test("does not end by a log-out that failed, and says so", async () => {
    on["GET /ui/session"] = json(as("ann"));
    on["DELETE /ui/session"] = refused(503, "busy");
    const my = await tab();
    await until(() => expect(my.session.value?.user).toBe("ann"));
    await my.logOut();
    expect(my.session.value?.user).toBe("ann");
    expect(my.sessionError.value).toBe("You are still logged in: busy.");
  });

  test("is over where a log-out finds none", async () => {
    on["GET /ui/session"] = json(as("ann"));
    const my = await tab();
    await until(() => expect(my.session.value?.user).toBe("ann"));
    on["DELETE /ui/session"] = refused(401, "there is no session");
    on["GET /ui/session"] = json(nobody);
    await my.logOut();
    expect(my.session.value?.user).toBe("");
  });

  test("of another user takes all off the page that was read, before it is theirs", async () => {
    on["GET /ui/session"] = json(as("ann"));
    on["GET /fleet/apis"] = json({ items: [] });
    on["GET /fleet/api"] = json({ items: [{ versions: [{ version: "v1", resources: [{ resource: "pods", responseKind: { kind: "Pod" }, scope: "Namespaced", verbs: ["list"] }] }] }] });
    const my = await tab(), { kinds, loadKinds } = await import("../src/data/kinds"), { say, toast } = await import("../src/app/notices");
    await until(() => expect(my.session.value?.user).toBe("ann"));
    await loadKinds();
    say("cart was suspended");
    expect(kinds.value).toHaveLength(1);
    on["GET /ui/session"] = json(as("bob"));
    const seen: string[] = [];
    my.session.subscribe((now) => { seen.push(`${now?.user ?? "?"} ${kinds.value.length} ${toast.value === undefined ? "" : "toast"}`); });
    another().say("bob");
    await until(() => expect(my.session.value?.user).toBe("bob"));
    expect(seen).toEqual(["ann 1 toast", " 0 ", "bob 0 "]);
  });

  test("is asked for again when it expires", async () => {
    on["GET /ui/session"] = json(as("ann", { expires: new Date(Date.now() + 300).toISOString() }));
    const my = await tab();
    await until(() => expect(my.session.value?.user).toBe("ann"));
    on["GET /ui/session"] = json(nobody);
    await until(() => expect(my.session.value?.user).toBe(""));
    expect(my.endedWhy.value).toBe("Your session has ended.");
  });

  test("is asked for again when a question is answered by 401", async () => {
    on["GET /ui/session"] = json(as("ann"));
    on["GET /query/v1/members"] = refused(401, "Unauthorized");
    const my = await tab(), { get } = await import("../src/data/api");
    await until(() => expect(my.session.value?.user).toBe("ann"));
    on["GET /ui/session"] = json(nobody);
    await expect(get("/query/v1/members")).rejects.toMatchObject({ code: 401 });
    await until(() => expect(my.session.value?.user).toBe(""));
  });

  test("ends when the stream says so, with its reason", async () => {
    on["GET /ui/session"] = json(as("ann"));
    on["GET /query/v1/stream"] = (_, response) => {
      on["GET /ui/session"] = json(nobody);
      response.writeHead(200).end(JSON.stringify({ session: { ended: "the credentials are not valid any more" } }) + "\n");
    };
    const my = await tab();
    await until(() => expect(my.session.value?.user).toBe("ann"));
    my.subscribe({ path: "/query/v1/members", resourceVersion: () => undefined, receive: () => undefined });
    await until(() => expect(my.session.value?.user).toBe(""));
    expect(my.endedWhy.value).toBe("The credentials are not valid any more.");
  });

  test("an answer that was overtaken does not count", async () => {
    let late: (() => void) | undefined;
    on["GET /ui/session"] = (request, response, body) => { late = () => void json(as("ann"))(request, response, body); };
    on["POST /ui/session"] = json(as("bob"));
    const my = await tab();
    await until(() => expect(late).toBeDefined());
    await my.logIn("bob's");
    late?.();
    expect(await (await answers[0])?.clone().json()).toMatchObject({ user: "ann" });
    await new Promise((resolve) => setTimeout(resolve, 20)); // long enough for who has the same answer
    expect(my.session.value?.user).toBe("bob");
  });

  test("is not known while the server is away, and why is said", async () => {
    on["GET /ui/session"] = (request) => { request.socket.destroy(); };
    const my = await tab();
    await until(() => expect(my.sessionError.value).toBe("the server cannot be reached"));
    expect(my.session.value).toBeUndefined();
  });
});

describe("the code in the fragment", () => {
  test("is gone from the address before it is used, and logs in", async () => {
    at("/ui/violations?policy=a#code=abc");
    let sent = "";
    on["POST /ui/session"] = (request, response, body) => {
      sent = `${body} at ${location.pathname}${location.search}${location.hash}`;
      json(as("ann", { methods: ["proxy"] }))(request, response, body);
    };
    const my = await tab();
    await until(() => expect(my.session.value?.user).toBe("ann"));
    expect(sent).toBe('{"code":"abc"} at /ui/violations?policy=a');
    expect(asked).toEqual(["POST /ui/session"]);
  });

  test("that was used is no matter to who is logged in already", async () => {
    at("/ui/#code=abc");
    on["POST /ui/session"] = refused(401, "the code is wrong, or was used before");
    on["GET /ui/session"] = json(as("ann"));
    const my = await tab();
    await until(() => expect(my.session.value?.user).toBe("ann"));
    expect(my.endedWhy.value).toBe("");
  });

  test("that was used says so to nobody", async () => {
    at("/ui/#code=abc");
    on["POST /ui/session"] = refused(401, "the code is wrong, or was used before");
    const my = await tab();
    await until(() => expect(my.endedWhy.value).toBe("The code is wrong, or was used before."));
    expect(my.session.value?.user).toBe("");
  });
});

// Workers are SharedWorkers that a test looks into: what they are told, and what they say.
function workers(): { told: ToStream[]; say(message: FromStream): void; fail(): void } {
  const told: ToStream[] = [];
  let port: { onmessage: ((event: { data: FromStream }) => void) | null } | undefined, failed: (() => void) | undefined;
  vi.stubGlobal("SharedWorker", class {
    readonly port = { onmessage: null, start: () => undefined, postMessage: (message: ToStream) => { told.push(message); } };
    set onerror(call: () => void) { failed = call; }
    constructor() { port = this.port; }
  });
  vi.stubGlobal("navigator", {});
  return { told, say: (message) => port?.onmessage?.({ data: message }), fail: () => failed?.() };
}

const receiver = (path: string, got: FromStream[] = [], resourceVersion?: string) => ({ got, path, resourceVersion: () => resourceVersion, receive: (message: FromStream) => { got.push(message); } });

describe("the link", () => {
  test("tells the worker who this is and what is asked, and each what is theirs", async () => {
    const worker = workers(), link = await import("../src/data/link");
    link.setUser("ann");
    const one = receiver("/query/v1/members"), two = receiver("/fleet/api/v1/pods", [], "7");
    const leave = link.subscribe(one);
    link.subscribe(two);
    expect(worker.told).toEqual([{ t: "user", user: "ann" }, { t: "subscribe", id: 1, path: one.path }, { t: "subscribe", id: 2, path: two.path, resourceVersion: "7" }]);
    worker.say({ t: "value", id: 1, value: "mine", at: 1 });
    worker.say({ t: "link", state: "live", at: 5 });
    expect([one.got.length, two.got.length, link.linkState.value]).toEqual([1, 0, { state: "live", at: 5 }]);
    leave();
    worker.say({ t: "value", id: 1, value: "late", at: 2 });
    expect([one.got.length, worker.told.at(-1)]).toEqual([1, { t: "unsubscribe", id: 1 }]);
  });

  test("knows what is old, until it is answered or nobody asks any more", async () => {
    const worker = workers(), link = await import("../src/data/link"), status = { kind: "Status" as const, code: 503, message: "busy" };
    link.setUser("ann");
    link.subscribe(receiver("/a"));
    const leave = link.subscribe(receiver("/b"));
    for (const id of [1, 2, 9]) worker.say({ t: "error", id, status, final: false });
    expect([...link.outdated.value.keys()]).toEqual([1, 2]);
    worker.say({ t: "value", id: 1, value: 1, at: 1 });
    leave();
    expect(link.outdated.value.size).toBe(0);
    worker.say({ t: "error", id: 1, status, final: true });
    expect(link.outdated.value.size).toBe(0); // it is said in place of the answer
  });

  test("goes on with a stream of its own where the worker does not load, with all that was asked", async () => {
    on["GET /query/v1/stream"] = (request, response) => {
      response.writeHead(200);
      for (const s of new URL(request.url ?? "", base).searchParams.getAll("s")) response.write(JSON.stringify({ id: s.split(" ")[0], value: s.split(" ")[1] }) + "\n");
    };
    const warned = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const worker = workers(), link = await import("../src/data/link");
    link.setUser("ann");
    const one = receiver("/query/v1/members"), two = receiver("/query/v1/policies");
    link.subscribe(one);
    link.subscribe(two);
    worker.fail();
    await until(() => expect([one, two].map(({ got }) => got.find((message) => message.t === "value"))).toMatchObject([{ value: one.path }, { value: two.path }]));
    expect(warned.mock.calls.flat().join()).toContain("a stream of its own");
    warned.mockRestore();
  });

  test("takes back nobody where the stream has said that it has ended: another tab may have somebody by then", async () => {
    const worker = workers(), link = await import("../src/data/link"), ended: string[] = [];
    link.whenEnded((why) => { ended.push(why); });
    link.setUser("ann");
    worker.say({ t: "ended", why: "your session has ended" });
    link.setUser("");
    expect([ended, worker.told]).toEqual([["your session has ended"], [{ t: "user", user: "ann" }]]);
    link.setUser("ann");
    expect(worker.told.length).toBe(2);
  });

  test("that is there before anybody is known asks for nothing, also where the worker does not load", async () => {
    let streams = 0;
    on["GET /query/v1/stream"] = (_, response) => { streams++; response.writeHead(200).write(JSON.stringify({ id: "0", value: "ann's" }) + "\n"); };
    const warned = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const worker = workers(), link = await import("../src/data/link");
    link.startLink();
    link.setUser(""); // the session is nobody's
    worker.fail();
    await new Promise((resolve) => setTimeout(resolve, 50)); // longer than a stream waits for what is asked together
    expect([worker.told, streams]).toEqual([[], 0]);
    const one = receiver("/query/v1/members");
    link.setUser("ann");
    link.subscribe(one);
    await until(() => expect(one.got).toMatchObject([{ t: "value", value: "ann's" }]));
    expect([worker.told, streams]).toEqual([[], 1]);
    warned.mockRestore();
  });

  test("asks for nothing while the tab is hidden, and for all when it is shown", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const worker = workers(), link = await import("../src/data/link");
    const turn = (hidden: boolean) => {
      Object.assign(document, { hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    };
    link.setUser("ann");
    link.subscribe(receiver("/a"));
    worker.say({ t: "link", state: "live", at: 5 });
    turn(true);
    vi.advanceTimersByTime(900);
    turn(false); // it was a moment only
    expect(worker.told).toHaveLength(2);
    turn(true);
    vi.advanceTimersByTime(1_100);
    expect(worker.told.at(-1)).toEqual({ t: "unsubscribe", id: 1 });
    link.subscribe(receiver("/b"));
    expect(worker.told).toHaveLength(3);
    turn(false);
    expect(worker.told.slice(3)).toEqual([{ t: "subscribe", id: 1, path: "/a" }, { t: "subscribe", id: 2, path: "/b" }]);
    expect(link.linkState.value.state).toBe("connecting"); // what is shown is from before
  });

  test("says nothing for nobody, and bye at the end", async () => {
    const worker = workers(), link = await import("../src/data/link");
    link.setUser("");
    dispatchEvent(new Event("pagehide"));
    expect(worker.told).toEqual([]);
    link.startLink();
    expect(worker.told).toEqual([]);
    dispatchEvent(new Event("pagehide"));
    expect(worker.told).toEqual([{ t: "bye" }]);
  });
});
