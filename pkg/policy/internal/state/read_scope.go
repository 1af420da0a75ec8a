package state

import (
	"slices"

	"federator.dev/federator/pkg/policy/internal/module"
)

// ReadScope is what the verdicts of a binding may reveal besides their own subjects: a
// caller who may not read all of it may not read the verdicts.
type ReadScope struct {
	Fleet   bool           // false: the subjects and their members only
	Kinds   module.KindSet // of objects of Members
	Members []string       // that data.fleet shows to the policy, in order
}

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
