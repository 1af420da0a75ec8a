import { expect, logIn, picture, test, tokenOf } from "../world.ts";

test("a policy's page says what has run its tests, and which lines take most or that it is not known", async ({ page }) => {
  await logIn(page, await tokenOf("olga"), "/ui/policies/federator.availability.no_disruption_budget");
  const facts = page.getByRole("tabpanel");
  await expect(facts.getByText(/\d+ Rego tests passed when federator was built/)).toBeVisible();
  const lines = facts.getByRole("list", { name: "Lines that take most" });
  await expect(lines.or(facts.getByText(/By line: not known yet|not known yet/)).first()).toBeVisible({ timeout: 60_000 });
  await picture(page, "policy-cost");
  if (await lines.count() > 0) { // a small fleet evaluates too little to know, at first
    await lines.getByRole("link").first().click();
    await expect(page).toHaveURL(/tab=rego/);
    await expect(page.locator(".rego-line.here")).toHaveCount(1);
  }
});
