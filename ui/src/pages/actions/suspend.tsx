import { send } from "../../data/api";
import type { PolicyInfo } from "../../data/types";
import { ReasonForm } from "../../pieces/reasonform";

// SuspendForm suspends a policy, or resumes it.
export function SuspendForm({ policy }: { policy: PolicyInfo }) {
  const spec = policy.fleetPolicy?.["spec"] as { suspend?: boolean } | undefined;
  const suspended = spec?.suspend === true || policy.state === "Suspended";
  if (policy.fleetPolicy == null) return null;
  return (
    <section class="section">
      <h2>{suspended ? "Suspended" : "Suspend"}</h2>
      <p class="dim">{suspended ? "It observes, and writes nothing. Resumed, it corrects what violates it, within its limits." : "Suspended, it goes on to observe, and writes nothing until it is resumed."}</p>
      <ReasonForm key={String(suspended)} verb={suspended ? `Resume ${policy.name}` : `Suspend ${policy.name}`} danger={!suspended} needsReason={false}
        send={async () => {
          await send("POST", `/ui/relay/fleetpolicies/${encodeURIComponent(policy.name)}/suspend`, { suspend: !suspended });
          return { text: suspended ? `${policy.name} is resumed` : `${policy.name} is suspended` };
        }} />
    </section>
  );
}
