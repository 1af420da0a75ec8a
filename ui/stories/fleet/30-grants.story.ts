import { drive, expect, logIn, picture, test, tokenOf, world } from "../world.ts";

const everywhere = ["/ui/", "/ui/?view=matrix", "/ui/?view=tiles", "/ui/explore?q=kind:deployments.apps", "/ui/violations", "/ui/policies", "/ui/actions", "/ui/actions?tab=waiting", "/ui/sources", "/ui/members/fleet/eu-1", "/ui/members/fleet/us-1"];

test("who may read Deployments of one member is told of nothing else", async ({ page }) => {
  // All that the server sends is looked at, and not only what the page shows.
  const bodies: string[] = [];
  page.on("response", (response) => {
    if (!/\/(query|fleet|flat|members)\//.test(response.url()) || response.url().includes("/stream")) return;
    void response.text().then((text) => bodies.push(`${response.url()} ${text}`), () => undefined);
  });
  await page.addInitScript(() => { // without a SharedWorker, the stream can be read here
    Reflect.deleteProperty(window, "SharedWorker");
    const real = window.fetch;
    const lines: string[] = [];
    Reflect.set(window, "streamed", lines);
    window.fetch = async (...args) => {
      const response = await real(...args);
      if (!String(args[0]).includes("/query/v1/stream") || response.body === null) return response;
      const [mine, theirs] = response.body.tee();
      void (async () => {
        const reader = mine.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { value, done } = await reader.read();
          if (done) return;
          lines.push(value);
        }
      })().catch(() => undefined);
      return new Response(theirs, response);
    };
  });
  await logIn(page, await tokenOf("eve"));
  const hidden = ["us-1", "ap-1", "is privileged", "shop.example.com", "debug", "PodDisruptionBudget selects"];
  let streamed = 0;
  for (const path of everywhere) {
    await page.goto(world.url + path);
    await expect(page.getByRole("navigation").first()).toBeVisible();
    await page.waitForLoadState("load");
    await expect.poll(() => page.evaluate(() => (Reflect.get(window, "streamed") as string[]).length)).toBeGreaterThan(0); // else nothing is proved
    await expect(page.locator("[aria-busy=true], .skeleton")).toHaveCount(0);
    const lines = await page.evaluate(() => (Reflect.get(window, "streamed") as string[]).join(""));
    streamed += lines.length;
    const text = await page.locator("body").innerText();
    for (const secret of hidden) {
      if (path.includes(secret)) continue; // what the address itself says
      expect(lines, `${secret} in what is streamed to ${path}`).not.toContain(secret);
      expect(text, `${secret} on ${path}`).not.toContain(secret);
    }
  }
  expect(streamed).toBeGreaterThan(1000);
  for (const body of bodies) for (const secret of hidden) if (!body.split(" ")[0]?.includes(secret)) expect(body).not.toContain(secret);
  // What she may read is there.
  await page.goto(world.url + "/ui/explore?q=kind:deployments.apps");
  await expect(page.getByRole("row").filter({ hasText: "fleet/eu-1" })).toHaveCount(3);
  // What she may not, is said to be so, with what is missing.
  await page.goto(world.url + "/ui/actions");
  await expect(page.getByText(/list actions/).first()).toBeVisible();
  await picture(page, "not-allowed");
});

test("a token for federator may look only, and the buttons say why", async ({ page }) => {
  await logIn(page, await tokenOf("olga"));
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await expect(page.getByRole("textbox", { name: "Why" })).toBeDisabled();
  await expect(page.getByRole("button", { name: "Stop all writes" })).toBeDisabled();
  await expect(page.getByText(/token/).first()).toBeVisible();
});

test("what is revoked while it is open is gone from every tab", async ({ page, context }) => {
  await drive("apply", { manifest: "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: leaver, namespace: teams}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: leaver}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fleet-reader}\nsubjects: [{kind: ServiceAccount, name: leaver, namespace: teams}]\n" });
  await logIn(page, await tokenOf("leaver"), "/ui/explore?q=kind:deployments.apps");
  const second = await context.newPage();
  await second.goto(world.url + "/ui/explore?q=kind:deployments.apps");
  for (const tab of [page, second]) await expect(tab.getByRole("row").filter({ hasText: "fleet/us-1" }).first()).toBeVisible();
  await drive("revoke", { user: "leaver" });
  for (const tab of [page, second]) {
    await expect(tab.getByLabel("Token of a user or ServiceAccount")).toBeVisible({ timeout: 40_000 });
    await expect(tab.getByText("fleet/us-1")).toHaveCount(0);
  }
});

test("a log-out in one tab empties the other, and another user sees their own", async ({ page, context }) => {
  await logIn(page, await tokenOf("olga"), "/ui/explore?q=kind:deployments.apps");
  const second = await context.newPage();
  await second.goto(world.url + "/ui/violations");
  await expect(second.getByRole("row").nth(3)).toBeVisible();
  await page.getByRole("button", { name: "Log out" }).click();
  await expect(second.getByLabel("Token of a user or ServiceAccount")).toBeVisible();
  await expect(second.getByRole("row")).toHaveCount(0);
  expect(await context.cookies()).toEqual([]);
  await logIn(page, await tokenOf("eve"), "/ui/explore?q=kind:deployments.apps");
  await expect(page.getByRole("row").filter({ hasText: "fleet/eu-1" })).toHaveCount(3);
  await expect(page.getByText("fleet/us-1")).toHaveCount(0);
});
