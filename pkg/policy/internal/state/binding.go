package state

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/lineprofile"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Binding is a binding with its verdicts, immutable.
type Binding struct {
	binding.Binding

	ID                           uint32 // of what was evaluated: unique, never reused
	Pkg                          *module.Package
	Described                    *module.Package // Pkg as its constraint describes it
	Selection                    *binding.Selection
	View                         uint32         // of a ViewSubject
	Keys                         interest.Space // of View
	Selected, Visible, Tolerated binding.MemberSet
	Health                       verdict.Health
	Retrying                     bool // subjects that exceeded the budget are to be evaluated again
	// Profile is the one thing that goes on changing: what its lines take, as far as it is known.
	Profile *lineprofile.Profile
	// Next is the version that is to take this one's place, nil for none, and Routing where it has.
	Next    *Binding
	Routing *binding.Routing

	Verdicts
}

// hasSubject reports whether a subject is one of the binding.
func (b *Binding) hasSubject(s *State, subject verdict.Subject) bool {
	switch b.Pkg.Subject {
	case module.MemberSubject:
		_, ok := s.parts.Fleet.Member(subject.Ref.Member)
		return ok && s.parts.Fleet.Judges(subject.Ref.Member) && subject == verdict.Subject{Ref: aggregate.Ref{Member: subject.Ref.Member}} && b.Selected.Has(subject.Ref.Member)
	case module.ViewSubject:
		return subject.Ref == aggregate.Ref{} && b.KeyExists(s, subject.Key)
	}
	o, ok := s.parts.Fleet.Get(subject.Ref)
	return ok && s.parts.Fleet.Judges(subject.Ref.Member) && subject.Key == "" && b.Pkg.HasKind(subject.Ref.Kind) && b.Selected.Has(subject.Ref.Member) && b.Selection.Selects(o)
}

// KeyExists reports whether the binding selects an entry of a key that is judged here.
func (b *Binding) KeyExists(s *State, key string) bool {
	v := s.parts.ByID[b.View]
	if v == nil || !s.parts.Owner.Owns(b.Name, key) {
		return false
	}
	for e := range v.Entries(key) {
		if b.Selection.EntryCounts(&e.Object.Ref, s.parts.Fleet, &b.Selected, &b.Visible) {
			return true
		}
	}
	return false
}

// Verdict assembles the verdict on a subject.
func (b *Binding) Verdict(s *State, subject verdict.Subject, c *completeness.ReadSet, f *Outcome) verdict.Verdict {
	v := verdict.Verdict{Binding: b.Name, Version: b.Version, Subject: subject}
	var found []verdict.Gap
	v.State, v.Message = b.completeness(s, c, subject.Ref.Member, func(g verdict.Gap) bool {
		if !slices.Contains(found, g) {
			found = append(found, g)
		}
		return len(found) < verdict.MaxGaps
	})
	if f != nil {
		v.Revision = f.Revision
	}
	switch {
	case v.State == verdict.Error:
	case f != nil && f.Failure != nil:
		v.State, v.Message, v.FirstSeen = verdict.Error, f.Failure.Err, f.FirstSeen
	default:
		v.Gaps = found
		if f != nil {
			v.Violations, v.FirstSeen = f.Violations(), f.FirstSeen
		}
	}
	return v
}

// completeness derives the state of verdicts from the scopes and views that they read.
// gap is called for each incomplete scope until it returns false.
func (b *Binding) completeness(s *State, c *completeness.ReadSet, member string, gap func(verdict.Gap) bool) (verdict.State, string) {
	if c == nil {
		return verdict.Known, ""
	}
	for _, id := range c.Views {
		if why := s.parts.ByID[id].LimitMessage(); why != "" {
			return verdict.Error, why
		}
	}
	state, more := verdict.Known, true
	if c.InDoubt {
		state, more = verdict.Unknown, gap(s.doubt(c, member))
	}
	for _, d := range c.External {
		why := s.parts.External.Problem(d.Source, d.Key)
		if d.All {
			why = s.parts.External.ProblemOfAny(d.Source)
		}
		if why != "" {
			state, more = verdict.Unknown, more && gap(notOfScope(c, member, aggregate.Unknown, why))
		}
	}
	found := func(g verdict.Gap) {
		if more && !b.Tolerated.Has(g.Member) {
			state = verdict.Unknown
			more = gap(g)
		}
	}
	for _, kind := range c.Own {
		if g, ok := s.parts.Gaps.At(kind, member); ok {
			found(g)
		}
	}
	for _, p := range c.Scopes {
		if g, ok := s.parts.Gaps.At(p.Kind, p.Member); ok && b.Visible.Has(p.Member) {
			found(g)
		}
	}
	wide := func(kind aggregate.Kind) {
		for _, g := range s.parts.Gaps.Of(kind) {
			if !more {
				return
			}
			if b.Visible.Has(g.Member) {
				found(g)
			}
		}
	}
	for _, kind := range c.All {
		wide(kind)
	}
	for _, id := range c.Views {
		v := s.parts.ByID[id]
		if v.Pkg.IsOpen() {
			for _, kind := range s.parts.Gaps.Kinds {
				if v.Pkg.HasKind(kind) {
					wide(kind)
				}
			}
		}
		for _, k := range v.Pkg.Kinds {
			wide(k.Kind)
		}
		for g := range v.Gaps() {
			if !more {
				break
			}
			if b.Visible.Has(g.Member) {
				found(g)
			}
		}
	}
	if c.Unheld.Any() {
		for g := range s.unheld(b, &c.Unheld) {
			if !more {
				break
			}
			found(g)
		}
	}
	return state, ""
}

// doubt is why verdicts are Unknown that read an instant which has passed once: no member's gap, so that none is
// tolerated.
func (s *State) doubt(c *completeness.ReadSet, member string) verdict.Gap {
	return notOfScope(c, member, aggregate.Stale, fmt.Sprintf(
		"the clock was set back: what has passed by %s is in doubt until it passes again", s.AsOf.Format(time.RFC3339)))
}

// notOfScope is why verdicts are Unknown where that is no scope's state.
func notOfScope(c *completeness.ReadSet, member string, state aggregate.State, why string) verdict.Gap {
	g := verdict.Gap{Member: member, State: state, Failure: why}
	if len(c.Own) > 0 {
		g.Kind = c.Own[0]
	}
	return g
}

// Subjects yields the subjects of the version, whether it is in effect or not. member "" means all.
func (b *Binding) Subjects(s *State, member string) iter.Seq[verdict.Subject] {
	return func(yield func(verdict.Subject) bool) {
		switch b.Pkg.Subject {
		case module.MemberSubject:
			for m := range s.parts.Fleet.Members() {
				if (member == "" || m.Name == member) && s.parts.Fleet.Judges(m.Name) && b.Selected.Has(m.Name) && !yield(verdict.Subject{Ref: aggregate.Ref{Member: m.Name}}) {
					return
				}
			}
		case module.ViewSubject:
			v := s.parts.ByID[b.View]
			if v == nil || member != "" {
				return
			}
			for key := range v.Keys() {
				if b.KeyExists(s, key) && !yield(verdict.Subject{Key: key}) {
					return
				}
			}
		default:
			for kind := range KindsOf(b.Pkg, s.parts.Fleet) {
				for o := range s.parts.Fleet.Judged(kind, member) {
					if b.Selected.Has(o.Member()) && b.Selection.Selects(o) && !yield(verdict.Subject{Ref: o.Ref()}) {
						return
					}
				}
			}
		}
	}
}
