package state

import (
	"iter"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// In returns the version of a policy that is in effect for what is of a member, or for keys of views where it is "".
func (b *Binding) In(member string) *Binding {
	if b.Next != nil && b.Routing.Has(member) {
		return b.Next
	}
	return b
}

// On returns the version that is in effect for a subject.
func (b *Binding) On(s verdict.Subject) *Binding { return b.In(s.Ref.Member) }

// main returns the version that speaks for the policy: the former one until the next has taken its place
// everywhere.
func (b *Binding) main() *Binding {
	if b.Next != nil && b.Routing.Whole() {
		return b.Next
	}
	return b
}

// Versions yields the versions of the policy.
func (b *Binding) Versions() iter.Seq[*Binding] {
	return func(yield func(*Binding) bool) {
		if yield(b) && b.Next != nil {
			yield(b.Next)
		}
	}
}

// inEffect yields those that are in effect anywhere: one in shadow is not waited for.
func (b *Binding) inEffect() iter.Seq[*Binding] {
	return func(yield func(*Binding) bool) {
		if b.main() == b && !yield(b) {
			return
		}
		if b.Next != nil && b.Routing.Some() {
			yield(b.Next)
		}
	}
}

// PackageIn returns the Package of the version of a policy that is in effect for what is of a member, or for keys of
// views where it is ""; nil for an unknown binding.
func (s *State) PackageIn(binding, member string) *module.Package {
	if b := s.parts.Binding(binding); b != nil {
		return b.In(member).Described
	}
	return nil
}

// BindingIn returns the binding of that version; the zero one for an unknown binding.
func (s *State) BindingIn(name, member string) binding.Binding {
	if b := s.parts.Binding(name); b != nil {
		return b.In(member).Binding
	}
	return binding.Binding{}
}

// Packages yields the Package of each version of a policy that is in effect anywhere: all that its verdicts and counts
// are of.
func (s *State) Packages(binding string) iter.Seq[*module.Package] {
	return func(yield func(*module.Package) bool) {
		b := s.parts.Binding(binding)
		if b == nil {
			return
		}
		for of := range b.inEffect() {
			if !yield(of.Described) {
				return
			}
		}
	}
}

// places yields the members of a snapshot in order, after "" for what is of none.
func places(s *fleetview.View) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield("") {
			return
		}
		for m := range s.Members() {
			if !yield(m.Name) {
				return
			}
		}
	}
}

// recordsIn yields the records of one member, or of keys.
func (b *Verdicts) recordsIn(member string) iter.Seq[record] {
	return func(yield func(record) bool) {
		b.records.Ascend(record{subject: verdict.Subject{Ref: aggregate.Ref{Member: member}}}, func(r record) bool {
			return r.subject.Ref.Member == member && yield(r)
		})
	}
}

// found yields the records of what is in effect, each with its version, in order. member "" means all.
func (b *Binding) found(s *State, member string) iter.Seq2[*Binding, record] {
	return func(yield func(*Binding, record) bool) {
		switch {
		case member != "":
			of := b.In(member)
			for r := range of.recordsIn(member) {
				if !yield(of, r) {
					return
				}
			}
		case b.Next == nil:
			b.records.Scan(func(r record) bool { return yield(b, r) })
		default:
			for m := range places(s.parts.Fleet) {
				of := b.In(m)
				for r := range of.recordsIn(m) {
					if !yield(of, r) {
						return
					}
				}
			}
		}
	}
}

// counted yields the tallies of what is in effect, each with its version, in order.
func (b *Binding) counted(s *State) iter.Seq2[*Binding, *tally] {
	return func(yield func(*Binding, *tally) bool) {
		if b.Next == nil {
			b.tallies.Scan(func(t *tally) bool { return yield(b, t) })
			return
		}
		for m := range places(s.parts.Fleet) {
			of := b.In(m)
			if t, ok := of.tallies.Get(&tally{member: m}); ok && !yield(of, t) {
				return
			}
		}
	}
}

// Outcomes yields the outcomes of one member, or of keys, where they are not clean.
func (b *Verdicts) Outcomes(member string) iter.Seq2[verdict.Subject, *Outcome] {
	return func(yield func(verdict.Subject, *Outcome) bool) {
		for r := range b.recordsIn(member) {
			if r.outcome != nil && !yield(r.subject, r.outcome) {
				return
			}
		}
	}
}
