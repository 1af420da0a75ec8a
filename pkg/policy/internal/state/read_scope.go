package state

import (
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// ReadScope is what the verdicts of a binding may reveal besides their own subjects: a
// caller who may not read all of it may not read the verdicts.
type ReadScope struct {
	Fleet   bool             // false: the subjects and their members only
	Kinds   []aggregate.Kind // sorted; of objects of Members
	AnyKind bool             // any kind
	Members []string         // that data.fleet shows to the policy, in order
}

// ReadScope returns what verdicts of a binding may reveal. It depends on the policy,
// its binding and the members of the snapshot, never on objects.
func (s *State) ReadScope(binding string) ReadScope {
	b := s.parts.Binding(binding)
	if b == nil || !b.Pkg.Reads.OfFleet() && b.Pkg.Subject != module.ViewSubject {
		return ReadScope{}
	}
	kinds, anyKind := s.parts.kindsRead(b.Pkg)
	scope := ReadScope{Fleet: true, Kinds: kinds, AnyKind: anyKind || b.Pkg.Reads.Scopes || b.Pkg.Reads.Names}
	for m := range s.Snapshot.Members() {
		if b.Visible.Has(m.Name) {
			scope.Members = append(scope.Members, m.Name)
		}
	}
	return scope
}
