import type { Page } from "@playwright/test";
import { world } from "./world.ts";

// What a fleet does at no time that a story could name (a busy server, a Plan that changes while it is read, hostile
// names) is made up here: the answers of the stream, in the tab itself. All else is the real page.
type Answers = Record<string, unknown>; // by how the path begins; the longest counts

interface Made {
  answers: Answers;
  tell(begin: string, line: Record<string, unknown>): void;
  asked(): string[];
}

declare global {
  interface Window { made: Made }
}

export async function open(page: Page, path: string, answers: Answers): Promise<void> {
  await page.addInitScript((first) => {
    Reflect.deleteProperty(globalThis, "SharedWorker");
    interface One { subs: [string, string][]; write(line: unknown): void }
    const streams = new Set<One>(), real = globalThis.fetch;
    const matching = (path: string) => Object.keys(window.made.answers).filter((begin) => path.startsWith(begin)).sort((a, b) => b.length - a.length)[0];
    window.made = {
      answers: first,
      asked: () => [...streams].flatMap((one) => one.subs.map(([, path]) => path)),
      tell(begin, line) {
        if ("value" in line) window.made.answers[begin] = line["value"];
        for (const one of streams) for (const [id, path] of one.subs) if (matching(path) === begin) one.write({ id, ...line });
      },
    };
    globalThis.fetch = (input, init) => {
      const url = new URL(String(input), location.href);
      if (url.pathname !== "/query/v1/stream") return real(input, init);
      const subs = url.searchParams.getAll("s").map((s): [string, string] => [s.slice(0, s.indexOf(" ")), s.slice(s.indexOf(" ") + 1)]);
      let control: ReadableStreamDefaultController<Uint8Array> | undefined;
      const body = new ReadableStream<Uint8Array>({ start(made) { control = made; } });
      const one: One = { subs, write(line) { control?.enqueue(new TextEncoder().encode(JSON.stringify(line) + "\n")); } };
      streams.add(one);
      init?.signal?.addEventListener("abort", () => { streams.delete(one); control?.error(new DOMException("closed", "AbortError")); });
      one.write({ beat: new Date().toISOString() });
      for (const [id, path] of subs) {
        const begin = matching(path);
        if (begin !== undefined) one.write({ id, value: window.made.answers[begin] });
      }
      return Promise.resolve(new Response(body, { status: 200 }));
    };
  }, answers);
  await page.route("**/ui/session", (route) => route.fulfill({ json: { user: "bob", groups: [], methods: ["token"], canWrite: true, cannotWriteWhy: "", expires: "", version: "v", hub: true } }));
  await page.goto(world.url + path);
}

export async function tell(page: Page, begin: string, line: Record<string, unknown>): Promise<void> {
  await page.evaluate(([b, l]) => window.made.tell(b, l), [begin, line] as const);
}

export async function asked(page: Page): Promise<string[]> {
  return page.evaluate(() => window.made.asked());
}

export const refused = (code: number, message: string) => ({ kind: "Status", code, message });
