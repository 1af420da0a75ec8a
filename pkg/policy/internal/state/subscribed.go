package state

import (
	"iter"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Wanted returns the keys of what others judge that verdicts have read, and those of views whose keys are subjects:
// everything where the engine's options do not say that others tell only these.
func (s *State) Wanted() *interest.Set { return s.parts.Wanted }

// Held returns the keys of which this process has all that others have told: what reads others is Unknown.
func (s *State) Held() *interest.Set { return s.parts.Held }

// unheld yields the gaps that keys are which are not held, of members that are away and that a binding sees.
func (s *State) unheld(b *Binding, u *completeness.Unheld) iter.Seq[verdict.Gap] {
	return func(yield func(verdict.Gap) bool) {
		for _, at := range u.Scopes {
			if s.parts.Fleet.Away(at.Member) && b.Visible.Has(at.Member) && !yield(completeness.UnheldGap(at.Member, at.Kind)) {
				return
			}
		}
		for _, kind := range u.All {
			if !s.unheldOf(b, kind, yield) {
				return
			}
		}
		for _, id := range u.Views {
			for kind := range s.contributing(s.parts.ByID[id]) {
				if !s.unheldOf(b, kind, yield) {
					return
				}
			}
		}
	}
}

func (s *State) unheldOf(b *Binding, kind aggregate.Kind, yield func(verdict.Gap) bool) bool {
	for _, m := range s.parts.Fleet.AwayMembers() {
		if b.Visible.Has(m) && !yield(completeness.UnheldGap(m, kind)) {
			return false
		}
	}
	return true
}

// contributing yields the kinds whose objects contribute to a view, of an open one those that there are.
func (s *State) contributing(v *matview.View) iter.Seq[aggregate.Kind] {
	return func(yield func(aggregate.Kind) bool) {
		if v == nil {
			return
		}
		for _, k := range v.Pkg.Kinds {
			if !yield(k.Kind) {
				return
			}
		}
		if !v.Pkg.IsOpen() {
			return
		}
		for _, kind := range s.parts.Gaps.Kinds {
			if v.Pkg.HasKind(kind) && !yield(kind) {
				return
			}
		}
	}
}

// waitsForKeys reports whether keys of the binding's view may be missing, so that there are no verdicts on them.
func (b *Binding) waitsForKeys(s *State) bool {
	return b.Pkg.Subject == module.ViewSubject && !s.parts.Held.HasAll(b.Keys)
}

// HoldsKeys reports whether all is held of the views whose keys are subjects, and what verdicts on keys read of others that another
// process has judged until a moment ago.
func (s *State) HoldsKeys() bool {
	if s.awaitsKeys() {
		return false
	}
	for _, b := range s.parts.Bindings {
		for of := range b.Versions() {
			if of.waitsForKeys(s) {
				return false
			}
		}
	}
	return true
}

// awaitsKeys reports whether keys are among the takeovers, of which these are the first.
func (s *State) awaitsKeys() bool { return len(s.parts.Takeovers) > 0 && s.parts.Takeovers[0] == "" }

// waits reports whether a version has verdicts on what is not held yet, or has subjects among it.
func (s *State) waits(b *Binding) bool {
	if s.parts.Held.IsEverything() || len(s.parts.Fleet.AwayMembers()) == 0 {
		return false
	}
	if b.waitsForKeys(s) {
		return true
	}
	waits := false
	b.tallies.Scan(func(t *tally) bool {
		waits = t.waits()
		return !waits
	})
	return waits
}
