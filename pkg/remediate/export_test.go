package remediate

import "federator.dev/federator/pkg/policy"

// Outcomes returns the outcomes of a policy's targets.
func (d *Dispatcher) Outcomes(binding string) map[policy.Ref]outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[policy.Ref]outcome{}
	if s := d.policies[binding]; s != nil {
		for target, o := range s.outcomes.of {
			out[target] = o.outcome
		}
	}
	return out
}
