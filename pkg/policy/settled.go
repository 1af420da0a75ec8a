package policy

import (
	"federator.dev/federator/pkg/aggregate"
)

// Settled reports whether it is known of every scope that a binding judges or reads
// what has become of it: none is Unknown or Syncing. Before, its verdicts have not
// all been counted.
func (s *State) Settled(binding string) bool {
	b := s.binding(binding)
	if b == nil {
		return false
	}
	kinds, anyKind := s.fed(b.pkg)
	if anyKind || b.pkg.AnyKind {
		kinds = s.gaps.kinds
	}
	settled := true
	look := func(kind aggregate.Kind) {
		for _, g := range s.gaps.of(kind) {
			if (b.selected.has(g.Member) || b.visible.has(g.Member)) && (g.State == aggregate.Unknown || g.State == aggregate.Syncing) {
				settled = false
			}
		}
	}
	for _, k := range kinds {
		look(k)
	}
	for _, k := range b.pkg.Kinds {
		look(k.Kind)
	}
	return settled
}

// Package returns what was loaded of the package that a binding binds, nil for a
// binding that is not there.
func (s *State) Package(binding string) *Package {
	if b := s.binding(binding); b != nil {
		return b.pkg
	}
	return nil
}
