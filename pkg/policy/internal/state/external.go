package state

import (
	"slices"

	"federator.dev/federator/pkg/policy/internal/external"
)

// External returns the documents from outside the fleet that the verdicts are of; nil: none have been read yet.
func (s *State) External() *external.Documents { return s.parts.External }

// ExternalDigest names what the verdicts of a policy follow from besides the fleet and the time: contents of the external documents of
// the sources that it may read, and which of them are known. It is "" for a policy that reads none.
func (s *State) ExternalDigest(binding string) string {
	if b := s.parts.Binding(binding); b != nil {
		if sources := b.sources(); len(sources) > 0 {
			return s.parts.External.Digest(sources)
		}
	}
	return ""
}

// sources returns the sources of external documents that any version reads, in order.
func (b *Binding) sources() (names []string) {
	for of := range b.Versions() {
		names = append(names, of.Pkg.Reads.External...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// AwaitsExternal reports whether documents that policies read are about to be known.
func (s *Parts) AwaitsExternal() bool {
	for _, b := range s.Bindings {
		for of := range b.inEffect() {
			if s.External.Pending(of.Pkg.Reads.External) {
				return true
			}
		}
	}
	return false
}
