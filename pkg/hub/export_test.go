package hub

import "federator.dev/federator/pkg/enforce"

// StopName is exported for tests.
const StopName = stopName

// State is exported for tests.
func (s *Stop) State() (text string, known bool) { return s.state() }

// Current is exported for tests.
func (s *PolicySources) Current(source string) (current bool, why string) {
	return s.current(s.opts.Manager.State(), source)
}

// Ceilings returns what each source allows.
func (s *PolicySources) Ceilings() map[string]enforce.Ceiling {
	out := map[string]enforce.Ceiling{}
	for _, ps := range s.list() {
		out[ps.Name] = toCeiling(ps)
	}
	return out
}
