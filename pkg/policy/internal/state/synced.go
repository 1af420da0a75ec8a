package state

import (
	"federator.dev/federator/pkg/aggregate"
)

// BindingSynced reports whether no scope that a binding evaluates or reads is Unknown
// or Syncing. Until then not all of its verdicts have been counted.
func (s *State) BindingSynced(binding string) bool {
	b := s.parts.Binding(binding)
	if b == nil {
		return false
	}
	kinds, anyKind := s.parts.kindsRead(b.Pkg)
	if anyKind || b.Pkg.AnyKind {
		kinds = s.parts.Gaps.Kinds
	}
	settled := true
	look := func(kind aggregate.Kind) {
		for _, g := range s.parts.Gaps.Of(kind) {
			if (b.Selected.Has(g.Member) || b.Visible.Has(g.Member)) && (g.State == aggregate.Unknown || g.State == aggregate.Syncing) {
				settled = false
			}
		}
	}
	for _, k := range kinds {
		look(k)
	}
	for _, k := range b.Pkg.Kinds {
		look(k.Kind)
	}
	return settled
}
