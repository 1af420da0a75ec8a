package policy

import (
	"iter"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// Unseen yields the incomplete scopes of what a binding judges, in the members that
// it selects and does not tolerate; for one about the keys of a view, of what feeds
// the view, and those of which an object could not contribute to it. Objects that are
// there and not seen have no verdict, not even an Unknown one.
func (s *State) Unseen(binding string) iter.Seq[Gap] {
	return func(yield func(Gap) bool) {
		b := s.binding(binding)
		if b == nil || b.pkg.Subject == module.MemberSubject {
			return
		}
		for _, kind := range s.judged(b) {
			for _, g := range s.gaps.of(kind) {
				seen := b.pkg.Subject == module.ObjectSubject || b.visible.has(g.Member)
				if seen && b.selected.has(g.Member) && !b.tolerated.has(g.Member) && !yield(g) {
					return
				}
			}
		}
		v := s.byID[b.view]
		if b.pkg.Subject != module.ViewSubject || v == nil {
			return
		}
		for g := range v.gaps() {
			if b.visible.has(g.Member) && b.selected.has(g.Member) && !b.tolerated.has(g.Member) && !yield(g) {
				return
			}
		}
	}
}

// judged are the kinds that a binding judges or counts, sorted.
func (s *State) judged(b *bindingState) []aggregate.Kind {
	var kinds []aggregate.Kind
	if b.pkg.AnyKind {
		kinds = slices.Clone(s.gaps.kinds)
	}
	for _, k := range b.pkg.Kinds {
		kinds = append(kinds, k.Kind)
	}
	if len(b.sel.kinds) > 0 {
		kinds = slices.DeleteFunc(kinds, func(k aggregate.Kind) bool { return !slices.Contains(b.sel.kinds, k) })
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
