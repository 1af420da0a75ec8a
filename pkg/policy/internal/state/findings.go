package state

import (
	"iter"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// FindingsAfter yields those Findings of a subject's member that come after the
// subject, without visiting those before.
func (s *State) FindingsAfter(binding string, after verdict.Subject) iter.Seq[verdict.Verdict] {
	return func(yield func(verdict.Verdict) bool) {
		b := s.parts.Binding(binding)
		if b == nil {
			return
		}
		b = b.On(after)
		b.records.Ascend(record{subject: after}, func(r record) bool {
			if r.subject.Ref.Member != after.Ref.Member {
				return false
			}
			return r.outcome == nil || r.subject == after || yield(b.Verdict(s, r.subject, r.readSet, r.outcome))
		})
	}
}

// Seen yields the violations of a binding, and those that failures hide, with when they were first seen.
func (s *State) Seen(binding string) iter.Seq[Seen] {
	return func(yield func(Seen) bool) {
		if b := s.parts.Binding(binding); b != nil {
			for _, r := range b.found(s, "") {
				if !r.yieldSeen(yield) {
					return
				}
			}
		}
	}
}

// SeenIn yields those that are of one member, or of keys of views where it is "".
func (s *State) SeenIn(binding, member string) iter.Seq[Seen] {
	return func(yield func(Seen) bool) {
		if b := s.parts.Binding(binding); b != nil {
			for r := range b.In(member).recordsIn(member) {
				if !r.yieldSeen(yield) {
					return
				}
			}
		}
	}
}

func (r *record) yieldSeen(yield func(Seen) bool) bool {
	for _, x := range r.outcome.Seen(r.subject) {
		if !yield(x) {
			return false
		}
	}
	return true
}

// SeenOf returns those of one subject.
func (s *State) SeenOf(binding string, subject verdict.Subject) []Seen {
	b := s.parts.Binding(binding)
	if b == nil {
		return nil
	}
	_, f := b.On(subject).Get(subject)
	return f.Seen(subject)
}

// Findings yields the verdicts of a binding that have violations or failed themselves,
// by member, kind, namespace and name, or by key. member "" means all. What makes all
// verdicts of a binding Errors is in its Health, once.
func (s *State) Findings(binding, member string) iter.Seq[verdict.Verdict] {
	return func(yield func(verdict.Verdict) bool) {
		b := s.parts.Binding(binding)
		if b == nil {
			return
		}
		for of, r := range b.found(s, member) {
			if r.outcome != nil && !yield(of.Verdict(s, r.subject, r.readSet, r.outcome)) {
				return
			}
		}
	}
}

// FindingsIn yields those Findings that are of one member, or of keys of views where it is "".
func (s *State) FindingsIn(binding, member string) iter.Seq[verdict.Verdict] {
	return func(yield func(verdict.Verdict) bool) {
		b := s.parts.Binding(binding)
		if b == nil {
			return
		}
		of := b.In(member)
		for r := range of.recordsIn(member) {
			if r.outcome != nil && !yield(of.Verdict(s, r.subject, r.readSet, r.outcome)) {
				return
			}
		}
	}
}

// Verdicts yields all verdicts of a binding, clean ones too, at the cost of visiting
// all subjects. member "" means all.
func (s *State) Verdicts(binding, member string) iter.Seq[verdict.Verdict] {
	return func(yield func(verdict.Verdict) bool) {
		b := s.parts.Binding(binding)
		if b == nil {
			return
		}
		for of := range b.inEffect() {
			for subject := range of.Subjects(s, member) {
				if b.On(subject) != of {
					continue
				}
				c, f := of.Get(subject)
				if !yield(of.Verdict(s, subject, c, f)) {
					return
				}
			}
		}
	}
}

// VerdictsOn yields the verdicts on a subject, by binding.
func (s *State) VerdictsOn(subject verdict.Subject) iter.Seq[verdict.Verdict] {
	return func(yield func(verdict.Verdict) bool) {
		for _, b := range s.parts.Bindings {
			if v, ok := s.Get(b.Name, subject); ok && !yield(v) {
				return
			}
		}
	}
}

// Counts yields the counts of verdicts of a binding by member, in order; "" is for keys
// of views, which belong to no member. It decodes no object.
func (s *State) Counts(binding string) iter.Seq2[string, verdict.Counts] {
	return func(yield func(string, verdict.Counts) bool) {
		b := s.parts.Binding(binding)
		if b == nil {
			return
		}
		for of, t := range b.counted(s) {
			if !yield(t.member, of.counts(s, t)) {
				return
			}
		}
	}
}

// counts returns the counts of a tally.
func (b *Binding) counts(s *State, t *tally) (c verdict.Counts) {
	for _, of := range t.byReadSet {
		state, _ := b.completeness(s, of.readSet, t.member, func(verdict.Gap) bool { return false })
		one := verdict.Counts{Errors: of.failed, Violations: of.violations, Exempt: of.exempt}
		switch state {
		case verdict.Known:
			one.Known = of.ok
		case verdict.Unknown:
			one.Unknown = of.ok
		case verdict.Error:
			one = verdict.Counts{Errors: of.ok + of.failed}
		}
		c.Add(one)
	}
	return c
}

// Total returns the sum of the counts of a binding.
func (s *State) Total(binding string) verdict.Counts {
	var total verdict.Counts
	for _, c := range s.Counts(binding) {
		total.Add(c)
	}
	return total
}

// Exempt returns why the violations of a subject are exempt, those that a failure hides, too; "" if they are not.
func (s *State) Exempt(binding string, subject verdict.Subject) string {
	b := s.parts.Binding(binding)
	if b == nil {
		return ""
	}
	b = b.On(subject)
	var object aggregate.Object
	if subject.Ref.Kind != "" {
		object, _ = s.parts.Fleet.Get(subject.Ref)
	}
	member, _ := s.parts.Fleet.Member(subject.Ref.Member)
	return b.Selection.Exempt(b.Pkg.Subject, subject, object, member)
}
