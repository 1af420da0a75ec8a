package state

import (
	"iter"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Incomplete yields the incomplete scopes of what a binding evaluates, in the members
// that it selects and does not tolerate. For a binding about keys of a view these are
// the scopes that contribute to the view, including those with an object whose
// contribution failed. Objects that exist in such a scope unseen have no verdict, not
// even an Unknown one. Of what other processes judge, only what contributes to keys is yielded.
func (s *State) Incomplete(binding string) iter.Seq[verdict.Gap] {
	return func(yield func(verdict.Gap) bool) {
		b := s.parts.Binding(binding)
		if b == nil {
			return
		}
		for of := range b.inEffect() {
			for g := range of.incomplete(s) {
				at := g.Member
				if of.Pkg.Subject == module.ViewSubject {
					at = "" // it contributes to keys
				}
				if b.In(at) == of && !yield(g) {
					return
				}
			}
		}
	}
}

// incomplete yields the incomplete scopes of what a version evaluates.
func (b *Binding) incomplete(s *State) iter.Seq[verdict.Gap] {
	return func(yield func(verdict.Gap) bool) {
		if b.Pkg.Subject == module.MemberSubject {
			return
		}
		for _, kind := range b.evaluatedKinds(s) {
			for _, g := range s.parts.Gaps.Of(kind) {
				seen := b.Visible.Has(g.Member)
				if b.Pkg.Subject == module.ObjectSubject {
					seen = s.parts.Fleet.Judges(g.Member)
				}
				if seen && b.Selected.Has(g.Member) && !b.Tolerated.Has(g.Member) && !yield(g) {
					return
				}
			}
		}
		v := s.parts.ByID[b.View]
		if b.Pkg.Subject != module.ViewSubject || v == nil {
			return
		}
		if b.waitsForKeys(s) {
			u := completeness.Unheld{Views: []uint32{b.View}}
			for g := range s.unheld(b, &u) {
				if b.Selected.Has(g.Member) && !b.Tolerated.Has(g.Member) && !yield(g) {
					return
				}
			}
		}
		for g := range v.Gaps() {
			if b.Visible.Has(g.Member) && b.Selected.Has(g.Member) && !b.Tolerated.Has(g.Member) && !yield(g) {
				return
			}
		}
	}
}

// evaluatedKinds are the kinds of the binding's subjects, or of its view's entries,
// sorted.
func (b *Binding) evaluatedKinds(s *State) []aggregate.Kind {
	kinds := b.Pkg.Evaluates().Among(slices.Values(s.parts.Gaps.Kinds))
	return slices.DeleteFunc(kinds, func(k aggregate.Kind) bool { return !b.Selection.SelectsKind(k) })
}
