// The figures of a large fleet under changes, printed and not judged: timings fail no test.
import { readFileSync } from "node:fs";
import type { Browser, CDPSession, Page } from "@playwright/test";
import { expect, logIn, test, world } from "../world.ts";

const token = world.tokens["local"] ?? "";
const minutes = Number(process.env["MINUTES"] ?? "5");

// cpu is how many seconds of a core federator has taken.
function cpu(): number {
  const fields = readFileSync(`/proc/${world.pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

function percentile(values: number[], p: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(p * sorted.length))] ?? NaN;
}

// firstRows is how long after the page was asked for its first rows were drawn. The page says so itself: who asks it from
// outside looks at it twice a second.
async function firstRows(page: Page, path: string): Promise<number> {
  const drawn = path.includes("matrix") ? "[role=grid] canvas" : "[role=grid] [role=rowgroup] [role=row]";
  await page.goto(world.url + path, { waitUntil: "commit" });
  return await page.evaluate((selector) => new Promise<number>((resolve) => {
    const look = () => {
      if (document.querySelector(selector) !== null) resolve(performance.now());
      else requestAnimationFrame(look);
    };
    look();
  }), drawn);
}

test("from the address to the first rows, with a cold cache", async ({ page, context }) => {
  await logIn(page, token);
  const session = await context.newCDPSession(page);
  await session.send("Network.enable");
  for (const path of ["/ui/", "/ui/explore?q=kind:pods", "/ui/violations", "/ui/policies", "/ui/?view=matrix"]) {
    const took: number[] = [];
    for (let i = 0; i < 9; i++) {
      await page.goto("about:blank");
      await session.send("Network.clearBrowserCache");
      took.push(Math.round(await firstRows(page, path)));
    }
    console.log(`first rows of ${path}: median ${percentile(took, 0.5)} ms, slowest ${Math.max(...took)} ms (${world.pods} pods, ${world.members} members)`);
  }
});

const mebi = 1 << 20;

// memory is what the page's script holds, and what the processes of pages and workers have to themselves, in MiB.
async function memory(browser: Browser, session: CDPSession): Promise<{ heap: number; own: number }> {
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  const system = await browser.newBrowserCDPSession();
  const { processInfo } = await system.send("SystemInfo.getProcessInfo");
  await system.detach();
  let own = 0;
  for (const { type, id } of processInfo) {
    if (type !== "renderer") continue;
    for (const [, kibi] of readFileSync(`/proc/${id}/smaps_rollup`, "utf8").matchAll(/^Private_(?:Clean|Dirty): +(\d+) kB$/gm)) own += Number(kibi) / 1024;
  }
  return { heap: usedSize / mebi, own };
}

// frames scrolls, and returns what script and layout of each frame have taken, in milliseconds of the page's thread: on a machine
// with two cores, which the fleet and its server share, the time of the day says how long the page had to wait for one.
async function frames(page: Page, session: CDPSession, seconds: number): Promise<number[]> {
  const events: { ts: number; dur: number; tdur: number }[] = [];
  session.on("Tracing.dataCollected", ({ value }) => {
    for (const e of value as unknown as { name: string; ts: number; dur?: number; tdur?: number }[]) {
      if ((e.name === "FunctionCall" || e.name === "Layout" || e.name === "UpdateLayoutTree" || e.name === "FireAnimationFrame" || e.name === "EvaluateScript") && e.dur !== undefined) events.push({ ts: e.ts, dur: e.dur, tdur: e.tdur ?? e.dur });
    }
  });
  await session.send("Tracing.start", { traceConfig: { includedCategories: ["devtools.timeline"] }, transferMode: "ReportEvents" });
  const until = Date.now() + seconds * 1000;
  for (let down = true; Date.now() < until; down = !down) {
    for (let i = 0; i < 40 && Date.now() < until; i++) {
      await page.mouse.wheel(0, down ? 400 : -400);
      await page.waitForTimeout(16);
    }
  }
  const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
  await session.send("Tracing.end");
  await complete;
  // Nested events count once: the outermost of each.
  events.sort((a, b) => a.ts - b.ts || b.dur - a.dur);
  const busy = new Map<number, number>();
  let end = 0;
  for (const e of events) {
    if (e.ts < end) continue;
    end = e.ts + e.dur;
    const frame = Math.floor(e.ts / 16_667);
    busy.set(frame, (busy.get(frame) ?? 0) + e.tdur / 1000);
  }
  return [...busy.values()];
}

// rate is how much of a core federator takes, over so many seconds.
async function rate(page: Page, seconds: number): Promise<number> {
  const began = Date.now(), before = cpu();
  await page.waitForTimeout(seconds * 1000);
  return (cpu() - before) / (Date.now() - began) * 1000 * 100;
}

const list = "/ui/explore?q=kind:pods";

test("what a tab takes of the server", async ({ page }) => {
  await logIn(page, token);
  const without: number[] = [], with_: number[] = [];
  for (let i = 0; i < 5; i++) {
    await page.goto("about:blank");
    await page.waitForTimeout(2_000);
    without.push(await rate(page, 20));
    await page.goto(world.url + list);
    await expect(page.getByRole("grid").first().getByRole("row").nth(5)).toBeVisible();
    await page.waitForTimeout(2_000);
    with_.push(await rate(page, 20));
  }
  const differences = with_.map((value, i) => value - (without[i] ?? NaN));
  console.log(`federator's CPU: median ${percentile(without, 0.5).toFixed(1)} % of a core without the tab, ${percentile(with_, 0.5).toFixed(1)} % with it; differences ${differences.map((d) => d.toFixed(1)).join(", ")}`);
});

test("a tab that stays open under changes", async ({ page, context, browser }) => {
  await logIn(page, token, list);
  await expect(page.getByRole("grid").first().getByRole("row").nth(5)).toBeVisible();
  const session = await context.newCDPSession(page);
  await page.getByRole("grid").first().hover();
  const busy = await frames(page, session, 20);
  console.log(`script and layout a frame while scrolling: p50 ${percentile(busy, 0.5).toFixed(1)} ms, p99 ${percentile(busy, 0.99).toFixed(1)} ms, of ${busy.length} frames`);
  for (let minute = 0; ; minute += 10) {
    const { heap, own } = await memory(browser, session);
    console.log(`after ${minute} minutes: ${heap.toFixed(1)} MiB of script in the page, ${own.toFixed(0)} MiB of the processes of pages and workers`);
    if (minute >= minutes) break;
    await page.waitForTimeout(Math.min(10, minutes - minute) * 60_000);
  }
});
