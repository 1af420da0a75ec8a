// The figures of a large fleet under changes, printed and not judged: timings fail no test.
import { readFileSync } from "node:fs";
import type { CDPSession, Page } from "@playwright/test";
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

test("from the address to the first rows, with a cold cache", async ({ page, context }) => {
  await logIn(page, token);
  const session = await context.newCDPSession(page);
  await session.send("Network.enable");
  for (const path of ["/ui/", "/ui/explore?q=kind:pods", "/ui/violations", "/ui/policies", "/ui/?view=matrix"]) {
    const took: number[] = [];
    for (let i = 0; i < 5; i++) {
      await page.goto("about:blank");
      await session.send("Network.clearBrowserCache");
      const began = Date.now();
      await page.goto(world.url + path, { waitUntil: "commit" });
      await page.getByRole("grid").first().locator(path.includes("matrix") ? "canvas, [role=row]" : "[role=row]").nth(path.includes("matrix") ? 0 : 2).waitFor();
      took.push(Date.now() - began);
    }
    console.log(`first rows of ${path}: median ${percentile(took, 0.5)} ms, slowest ${Math.max(...took)} ms (${world.pods} pods, ${world.members} members)`);
  }
});

async function heap(session: CDPSession): Promise<number> {
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  return usedSize / (1 << 20);
}

// frames scrolls, and returns for how long each frame was busy with script and layout.
async function frames(page: Page, session: CDPSession, seconds: number): Promise<number[]> {
  const events: { ts: number; dur: number }[] = [];
  session.on("Tracing.dataCollected", ({ value }) => {
    for (const e of value as unknown as { name: string; ts: number; dur?: number }[]) {
      if ((e.name === "FunctionCall" || e.name === "Layout" || e.name === "UpdateLayoutTree" || e.name === "FireAnimationFrame" || e.name === "EvaluateScript") && e.dur !== undefined) events.push({ ts: e.ts, dur: e.dur });
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
    busy.set(frame, (busy.get(frame) ?? 0) + e.dur / 1000);
  }
  return [...busy.values()];
}

test("a tab that stays open under changes", async ({ page, context }) => {
  const idle = cpu();
  await page.waitForTimeout(20_000);
  const without = (cpu() - idle) / 20;
  await logIn(page, token, "/ui/explore?q=kind:pods");
  await expect(page.getByRole("grid").first().getByRole("row").nth(5)).toBeVisible();
  const session = await context.newCDPSession(page);
  const began = cpu();
  await page.waitForTimeout(20_000);
  const before = await heap(session);
  const withTab = (cpu() - began) / 20;
  console.log(`federator's CPU: ${(without * 100).toFixed(1)} % of a core without the tab, ${((withTab - without) * 100).toFixed(1)} % more with it`);
  await page.getByRole("grid").first().hover();
  const busy = await frames(page, session, 20);
  console.log(`script and layout a frame while scrolling: p50 ${percentile(busy, 0.5).toFixed(1)} ms, p99 ${percentile(busy, 0.99).toFixed(1)} ms, of ${busy.length} frames`);
  await page.waitForTimeout(minutes * 60_000);
  console.log(`heap of the page: ${before.toFixed(0)} MiB at first, ${(await heap(session)).toFixed(0)} MiB after ${minutes} minutes`);
});
