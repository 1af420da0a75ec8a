// Other parameters of a policy are another version: in shadow it is judged beside the one in effect, until somebody
// who may ends that.
import { drive, expect, logInAtIssuer, picture, platform, test, world } from "../world.ts";

const policy = (replicas: number) => `apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: rolls}
spec:
  package: platform.replicas
  parameters: {replicas: ${replicas}}
  rollout: {shadow: 1h, maxNew: 100%}
`;

test("a version in shadow says what it would find, and its shadow is ended with a reason", async ({ page }) => {
  await drive("apply", { manifest: platform });
  await drive("apply", { manifest: policy(1) });
  await logInAtIssuer(page, "bob"); // a person: Approvals of service accounts count only where they are listed
  await page.goto(world.url + "/ui/policies/rolls?tab=binding");
  await page.getByRole("searchbox", { name: "Find in FleetPolicy" }).fill("effective");
  await expect(page.getByRole("group", { name: "FleetPolicy" }).getByText("effective:")).toBeVisible({ timeout: 40_000 }); // what is in effect is kept
  await drive("apply", { manifest: policy(9) });
  await page.goto(world.url + "/ui/policies/rolls");
  const version = page.getByRole("note").filter({ hasText: "New version: in shadow" });
  await expect(version).toContainText(/[1-9]\d* new violations, 0 gone/, { timeout: 20_000 });
  await picture(page, "rollout");
  await version.getByRole("textbox", { name: "Why" }).fill("nine is right");
  await version.getByRole("button", { name: "End the shadow" }).click();
  await expect(version).toBeHidden({ timeout: 40_000 }); // with what it answered: the version is in effect
  await page.goto(world.url + "/ui/violations?policy=rolls");
  await expect(page.getByText(/where 9 are asked for/).first()).toBeVisible({ timeout: 20_000 });
});
