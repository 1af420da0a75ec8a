package hub

import (
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/remediate"
)

// StopName is exported for tests.
const StopName = stopName

// State is exported for tests.
func (s *Stop) State() (stops remediate.Stops, known bool) { return s.state() }

// ConfigMap is exported for tests.
func (s StopScope) ConfigMap() string { return s.configMap() }

// Current is exported for tests.
func (s *PolicySources) Current(source string) (current bool, why string) {
	return s.current(s.opts.Manager.State(), source)
}

// Ceilings returns what each source allows.
func (s *PolicySources) Ceilings() map[string]enforce.Ceiling {
	out := map[string]enforce.Ceiling{}
	for _, ps := range s.list() {
		if c, err := toCeiling(ps); err == nil {
			out[ps.Name] = c
		}
	}
	return out
}
