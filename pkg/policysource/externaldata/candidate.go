package externaldata

import (
	"maps"

	"federator.dev/federator/pkg/policy"
)

// Beside returns the documents of a state as they would be with another commit of a source, which is not active.
func (m *Manager) Beside(s *State, source string, c Checkout) *policy.External {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := map[string]policy.ExternalDocument{}
	for n, r := range m.runners {
		if n.source != source || r.spec.File == "" {
			continue
		}
		doc, schema, err := r.spec.withDefaults()
		if err != nil {
			continue
		}
		other := &runner{m: m, source: source, spec: r.spec, doc: doc, schema: schema}
		other.take(other.file(&c))
		d, _ := s.External.Document(source, n.key)
		if other.bad != nil {
			d.Problem, d.Pending = other.bad.message, false
		} else {
			d = policy.ExternalDocument{JSON: other.content, From: other.from, At: c.At}
		}
		changed[n.key] = d
	}
	if len(changed) == 0 {
		return s.External
	}
	all := map[string]policy.ExternalDocument{}
	keys, _ := s.External.Keys(source)
	for _, key := range keys {
		all[key], _ = s.External.Document(source, key)
	}
	maps.Copy(all, changed)
	out, err := s.External.With(source, all)
	if err != nil { // each was decoded
		return s.External
	}
	return out
}
