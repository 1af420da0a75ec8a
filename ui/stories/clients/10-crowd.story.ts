// A tab alone, and beside 200 others; printed and not judged.
import type { Page } from "@playwright/test";
import { drive, logIn, test, world } from "../world.ts";

interface Bucket {
  seconds: number;
  count: number;
}

// median is the upper bound of the bucket in which the median of what came between two readings is.
function median(before: Bucket[], after: Bucket[]): number {
  const counts = after.map((bucket, i) => ({ seconds: bucket.seconds, count: bucket.count - (before[i]?.count ?? 0) }));
  const all = counts.at(-1)?.count ?? 0;
  return counts.find((bucket) => bucket.count * 2 >= all)?.seconds ?? NaN;
}

function middle(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
}

async function firstRows(page: Page): Promise<number> {
  const took: number[] = [];
  for (let i = 0; i < 7; i++) {
    await page.goto("about:blank");
    const began = Date.now();
    await page.goto(world.url + "/ui/explore?q=kind:pods", { waitUntil: "commit" });
    await page.getByRole("grid").first().locator("[role=row]").nth(2).waitFor();
    took.push(Date.now() - began);
  }
  return middle(took);
}

// events is how late a page gets the events of one member, of which each has its time.
async function events(page: Page, seconds: number): Promise<{ p50: number; p99: number; n: number }> {
  return page.evaluate(async (milliseconds) => {
    const path = "/fleet/api/v1/pods?watch=true&as=Table&labelSelector=" + encodeURIComponent("federator.dev/member-name=member-1");
    const abort = new AbortController();
    const response = await fetch("/query/v1/stream?watch=true&s=" + encodeURIComponent("p " + path), { signal: abort.signal });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    const late: number[] = [];
    const began = Date.now();
    for (let rest = ""; reader !== undefined && Date.now() - began < milliseconds;) {
      const { value, done } = await reader.read();
      if (done) break;
      const now = Date.now();
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const at = /"sim\.federator\.dev\/at":"(\d+)"/.exec(line)?.[1];
        if (at !== undefined && line.includes('"MODIFIED"')) late.push(now - Number(at) / 1e6);
      }
    }
    abort.abort();
    late.sort((a, b) => a - b);
    return { p50: late[Math.floor(late.length / 2)] ?? NaN, p99: late[Math.floor(late.length * 0.99)] ?? NaN, n: late.length };
  }, seconds * 1000);
}

test("a tab beside 200 others", async ({ page }) => {
  await logIn(page, world.tokens["local"] ?? "");
  const measure = async () => {
    const before = await drive<Bucket[]>("commits");
    const first = await firstRows(page);
    const late = await events(page, 30);
    return { first, late, commit: median(before, await drive<Bucket[]>("commits")) };
  };
  const alone = await measure();
  await drive("clients", { number: 200 });
  const crowd = await measure();
  for (const [name, m] of Object.entries({ alone, "beside 200": crowd })) {
    console.log(`${name}: first rows ${m.first} ms; an event reaches the page after ${m.late.p50.toFixed(1)} ms (p50), ${m.late.p99.toFixed(1)} ms (p99), of ${m.late.n}; commit p50 at most ${m.commit * 1000} ms`);
  }
  console.log(`first rows ${(crowd.first / alone.first).toFixed(2)}x, events p50 ${(crowd.late.p50 / alone.late.p50).toFixed(2)}x, commit p50 ${(crowd.commit / alone.commit).toFixed(2)}x`);
});
