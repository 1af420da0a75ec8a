import { defineConfig } from "@playwright/test";

// The fleet that stories run on is started by the tests of test/ui, which say where it is.
export default defineConfig({
  testDir: "stories",
  outputDir: process.env["UI_RESULTS"] ?? "results",
  fullyParallel: false,
  workers: 1, // the stories of a project share a fleet
  retries: 0,
  forbidOnly: true,
  timeout: 360_000, // of a story that hangs: axe alone takes half of 90 s where others take the cores
  expect: { timeout: 20_000 },
  reporter: "list",
  use: {
    baseURL: process.env["FEDERATOR_URL"],
    actionTimeout: 20_000,
    ignoreHTTPSErrors: true, // the certificate is the test's own
    viewport: { width: 1440, height: 900 },
    trace: "retain-on-failure",
    screenshot: "only-on-failure",
    launchOptions: {
      executablePath: process.env["UI_CHROMIUM"] ?? "/usr/bin/chromium",
      // What ignoreHTTPSErrors is for pages, this is for their workers.
      args: ["--ignore-certificate-errors", ...(process.getuid?.() === 0 ? ["--no-sandbox"] : [])],
    },
  },
  projects: [
    { name: "fleet", testMatch: "fleet/*.story.ts" },
    { name: "empty", testMatch: "empty/*.story.ts" },
    { name: "large", testMatch: "large/*.story.ts" },
    { name: "scale", testMatch: "scale/*.story.ts" },
    { name: "figures", testMatch: "figures/*.story.ts", timeout: 7_200_000, use: { trace: "off" } },
    { name: "clients", testMatch: "clients/*.story.ts", timeout: 600_000, use: { trace: "off" } },
    { name: "latency", testMatch: "latency/*.story.ts", timeout: 600_000, use: { trace: "off" } },
  ],
});
