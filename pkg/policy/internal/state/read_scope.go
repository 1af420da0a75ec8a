package state

import (
	"iter"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// ReadScope is what the verdicts of a binding may reveal besides their own subjects: a
// caller who may not read all of it may not read the verdicts.
type ReadScope struct {
	Fleet   bool           // false: the subjects and their members only
	Kinds   module.KindSet // of objects of Members
	Members []string       // that data.fleet shows to the policy, in order
	Sources []string       // of external documents, in order
}

// Elsewhere returns the members, by name, that policies see and this process does not read: another one has told of them.
// nil where it has the fleet alone.
func (s *State) Elsewhere() (members []string) {
	if s.parts.Fleet.Peers() == nil {
		return nil
	}
	for m := range s.parts.Fleet.Members() {
		if _, here := s.Snapshot.Member(m.Name); !here {
			members = append(members, m.Name)
		}
	}
	return members
}

// Told returns what other processes have told of the members that are Elsewhere: their scopes say under which resources these were
// read. nil where this process has the fleet alone.
func (s *State) Told() *aggregate.Snapshot { return s.parts.Fleet.Peers() }

// Kinds yields the kinds of which there are scopes in any member that policies see, in order.
func (s *State) Kinds() iter.Seq[aggregate.Kind] { return s.parts.Fleet.Kinds() }

// ReadScope returns what verdicts of a binding may reveal. It depends on the policy,
// its binding and the members of the snapshot, never on objects. Of two versions it is what either may reveal: which
// of them is in effect changes by itself.
func (s *State) ReadScope(binding string) ReadScope {
	var scope ReadScope
	b := s.parts.Binding(binding)
	if b == nil {
		return scope
	}
	var fleet []*Binding
	for of := range b.Versions() {
		if of.Pkg.Reads.OfFleet() || of.Pkg.Subject == module.ViewSubject {
			fleet = append(fleet, of)
		}
	}
	scope.Sources = b.sources()
	for _, of := range fleet {
		kinds := s.parts.kindsRead(of.Pkg)
		kinds.All = kinds.All || of.Pkg.Reads.Scopes || of.Pkg.Reads.Names
		scope.Fleet = true
		scope.Kinds.Add(&kinds)
	}
	for m := range s.parts.Fleet.Members() {
		if slices.ContainsFunc(fleet, func(of *Binding) bool { return of.Visible.Has(m.Name) }) {
			scope.Members = append(scope.Members, m.Name)
		}
	}
	return scope
}
