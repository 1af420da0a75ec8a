package externaldata

import (
	"maps"

	"federator.dev/federator/pkg/policy"
)

// Beside returns the documents of a state as they would be with another commit of a source, which is not active.
func (m *Manager) Beside(s *State, source string, c Checkout) *policy.External {
	changed := map[string]policy.ExternalDocument{}
	for _, spec := range m.files(source) { // without holding anybody up
		doc, schema, err := spec.withDefaults()
		if err != nil {
			continue
		}
		other := &runner{m: m, source: source, spec: spec, doc: doc, schema: schema}
		other.take(other.file(&c))
		d, _ := s.External.Document(source, spec.Key)
		if other.bad != nil {
			d.Problem, d.Pending = other.bad.message, false
		} else {
			d = policy.ExternalDocument{JSON: other.content, From: other.from, At: c.At}
		}
		changed[spec.Key] = d
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

// files returns the documents of a source that are files.
func (m *Manager) files(source string) (specs []Document) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, r := range m.runners {
		if n.source == source && r.spec.File != "" {
			specs = append(specs, r.spec)
		}
	}
	return specs
}
