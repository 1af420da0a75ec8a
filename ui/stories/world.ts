import { existsSync, readFileSync } from "node:fs";
import AxeBuilder from "@axe-core/playwright";
import { expect, test as base, type Page } from "@playwright/test";

// World says where things are: see test/ui.
export interface World {
  url: string;
  driver: string;
  screenshots: string;
  tokens: Record<string, string>;
  members: number; // of a simulated fleet, and its pods
  pods: number;
  pid: number; // of federator
}

export const world: World = JSON.parse(readFileSync(process.env["UI_WORLD"] ?? "world.json", "utf8")) as World;

// built is a directory with the files of another build, which are tried instead of those in the binary.
const built = process.env["UI_DIST"] ?? "";

// drive has the driver do something to the fleet.
export async function drive<T>(what: string, command: Record<string, unknown> = {}): Promise<T> {
  const response = await fetch(`${world.driver}/${what}`, { method: "POST", body: JSON.stringify(command) });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as T;
}

// test is a story: it fails on any error that the page reports, and on what its content security
// policy refuses.
// platform is the PolicySource of the policies of the demonstration.
export const platform = `apiVersion: federator.dev/v1alpha1
kind: PolicySource
metadata: {name: platform}
spec:
  url: $REPO
  interval: 10s
  ceiling: {maxMode: Enforce, actions: [{verbs: [patch], kinds: [Deployment.apps]}]}
`;

export const test = base.extend<{ page: Page }>({
  page: async ({ page }, use) => {
    const problems: string[] = [];
    page.on("pageerror", (error) => problems.push(`${error.name}: ${error.message}`));
    page.on("console", (message) => {
      if (message.type() === "warning" && message.text().includes("Permissions-Policy")) problems.push(message.text());
      if (message.type() === "error" && !/Failed to load resource|net::ERR_/.test(message.text())) problems.push(message.text());
    });
    if (built !== "") await page.context().route(/\/ui\/(?!session|relay|oidc)/, async (route) => {
      const path = new URL(route.request().url()).pathname.slice("/ui/".length);
      const file = existsSync(`${built}/${path}`) && path !== "" ? path : "index.html";
      const headers = (await route.fetch({ url: `${world.url}/ui/` })).headers();
      await route.fulfill({ path: `${built}/${file}`, headers: { "content-security-policy": headers["content-security-policy"] ?? "" } });
    });
    await use(page);
    expect(problems, "errors that the page reported").toEqual([]);
  },
});

// logIn logs in by a token of a user.
export async function logIn(page: Page, token: string, at = "/ui/"): Promise<void> {
  await page.goto(world.url + at);
  await page.getByLabel("Token of a user or ServiceAccount").fill(token);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await expect(page.getByRole("navigation").first()).toBeVisible();
}

// tokenOf returns a token by which a user may look and, with the hub's own audience, write.
export async function tokenOf(user: string, audience: "federator" | "hub" = "federator"): Promise<string> {
  return drive<string>("token", { user, audience: audience === "hub" ? "" : audience });
}

// logInAtIssuer logs in as a user of the issuer, at whose page the browser is sent.
export async function logInAtIssuer(page: Page, user: string): Promise<void> {
  await page.goto(world.url + "/ui/");
  await page.getByRole("button", { name: "Log in with your organisation" }).click();
  await page.locator("input[name=username]").fill(user);
  await page.locator("input[name=password]").fill("correct horse");
  await page.locator("button[type=submit], input[type=submit]").click();
  await expect(page.getByRole("navigation").first()).toBeVisible();
  await expect(page.getByText(`oidc:${user}`)).toBeVisible();
}

// accessible fails for what axe-core finds, of some of its rules or of all. Pages have no frames, which legacy mode leaves out: without
// it, and with the details of what is well, axe takes several times as long.
export async function accessible(page: Page, rules?: string[]): Promise<void> {
  const axe = new AxeBuilder({ page }).setLegacyMode(true).options({ resultTypes: ["violations"] });
  const { violations } = await (rules === undefined ? axe : axe.withRules(rules)).analyze();
  expect(violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.target.join(" ")).join(", ")}`)).toEqual([]);
}

const themes = process.env["UI_FULL"] === "true" ? (["light", "dark"] as const) : (["light"] as const);

// picture looks at a page in both themes, and takes the pictures of docs/ui. A short turn looks at one.
export async function picture(page: Page, name: string): Promise<void> {
  await look(page, name, world.screenshots);
}

// look does so without pictures for docs/ui: they are in the directory UI_LOOK, if that is set, for somebody who looks at them.
export async function look(page: Page, name: string, directory = process.env["UI_LOOK"] ?? "", check = true): Promise<void> {
  for (const theme of themes) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
    if (check) await accessible(page, theme === "light" ? undefined : ["color-contrast"]); // themes differ in colours alone
    if (directory !== "") await page.screenshot({ path: `${directory}/${name}-${theme}.png` });
  }
}

// settled waits until nothing on the page is still loading.
export async function settled(page: Page): Promise<void> {
  await expect(page.getByRole("heading").first()).toBeVisible();
  await expect(page.locator("[aria-busy=true], .skeleton")).toHaveCount(0);
}

// resize waits until rows are drawn for the new size: axe-core must not see those of the old one while they are replaced.
export async function resize(page: Page, width: number, height: number): Promise<void> {
  await page.setViewportSize({ width, height });
  await expect(page.locator(width <= 700 ? ".tbody .td" : ".tbody .lines")).toHaveCount(0);
}

// fits fails where the page must be scrolled sideways: only what scrolls in itself may be wider.
export async function fits(page: Page): Promise<void> {
  expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
}

export { expect };
