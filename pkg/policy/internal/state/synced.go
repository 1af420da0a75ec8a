package state

import (
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// BindingSynced reports whether no scope that a binding evaluates or reads is waited for. Until
// then not all of its verdicts have been counted; those of members that are given up are not. A version that is in
// effect nowhere is not waited for.
func (s *State) BindingSynced(binding string) bool {
	b := s.parts.Binding(binding)
	if b == nil {
		return false
	}
	for of := range b.inEffect() {
		if s.anyGap(of, s.parts.Gaps.Awaited) {
			return false
		}
	}
	return true
}

// Unread returns the members of which a binding evaluates or reads a scope that this process has not
// read, nil for none: what they have is not known, or of before a restart.
func (s *State) Unread(binding string) map[string]bool {
	b := s.parts.Binding(binding)
	if b == nil {
		return nil
	}
	var out map[string]bool
	for of := range b.inEffect() {
		s.anyGap(of, func(g verdict.Gap) bool {
			if g.Unread() {
				if out == nil {
					out = map[string]bool{}
				}
				out[g.Member] = true
			}
			return false
		})
	}
	return out
}

// anyGap reports whether is does for any gap of what a binding evaluates or reads.
func (s *State) anyGap(b *Binding, is func(verdict.Gap) bool) bool {
	kinds, anyKind := s.parts.kindsRead(b.Pkg)
	if anyKind || b.Pkg.AnyKind {
		kinds = s.parts.Gaps.Kinds
	}
	for _, list := range [][]module.KindRef{b.Pkg.Kinds, b.Selection.ReadKinds()} {
		for _, k := range list {
			kinds = append(kinds[:len(kinds):len(kinds)], k.Kind)
		}
	}
	for _, kind := range kinds {
		for _, g := range s.parts.Gaps.Of(kind) {
			if (b.Selected.Has(g.Member) || b.Visible.Has(g.Member)) && is(g) {
				return true
			}
		}
	}
	return false
}
