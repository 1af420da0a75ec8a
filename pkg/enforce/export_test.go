package enforce

import "federator.dev/federator/pkg/policy"

// Judge has a policy's subject judged as a verdict says, beside the state: of a version that its
// engine does not have.
func (c *Corrector) Judge(v *policy.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaceSubject(c.bindings[v.Binding], c.specs[v.Binding], v.Subject, v)
	c.dispatchLocked(v.Binding)
}
