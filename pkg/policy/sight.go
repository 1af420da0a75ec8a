package policy

import (
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// Sight is what the verdicts of a binding may tell of beside their own subjects:
// who may not read all of it may not read them.
type Sight struct {
	Fleet   bool             // false: subjects alone, and their members
	Kinds   []aggregate.Kind // sorted; of objects of Members
	Any     bool             // any kind
	Members []string         // that data.fleet shows to the policy, in order
}

// Sight returns what verdicts of a binding may tell of. It follows from the policy, its
// binding and the members of the snapshot, never from objects.
func (s *State) Sight(binding string) Sight {
	b := s.binding(binding)
	if b == nil || !b.pkg.Reads.OfFleet() && b.pkg.Subject != module.ViewSubject {
		return Sight{}
	}
	kinds, anyKind := s.fed(b.pkg)
	sight := Sight{Fleet: true, Kinds: kinds, Any: anyKind || b.pkg.Reads.Scopes || b.pkg.Reads.Names}
	for m := range s.Snapshot.Members() {
		if b.visible.has(m.Name) {
			sight.Members = append(sight.Members, m.Name)
		}
	}
	return sight
}

// fed are the kinds that a package reads of the fleet, those that feed its views
// included, sorted.
func (s *State) fed(p *module.Package) (kinds []aggregate.Kind, anyKind bool) {
	seen := map[module.ViewRef]bool{}
	var follow func(p *module.Package)
	follow = func(p *module.Package) {
		for _, refs := range [][]KindRef{p.Reads.ByName, p.Reads.Objects} {
			for _, k := range refs {
				kinds = append(kinds, k.Kind)
			}
		}
		views := p.Reads.Views
		if p.Subject == module.ViewSubject {
			views = append(slices.Clone(views), module.ViewRef{Package: p.Name, View: p.SubjectView})
		}
		for _, ref := range views {
			v := s.viewOf(ref)
			if v == nil || seen[ref] {
				continue
			}
			seen[ref] = true
			anyKind = anyKind || v.pkg.AnyKind
			for _, k := range v.pkg.Kinds {
				kinds = append(kinds, k.Kind)
			}
			follow(v.pkg)
		}
	}
	follow(p)
	slices.Sort(kinds)
	return slices.Compact(kinds), anyKind
}

func (s *State) viewOf(ref module.ViewRef) *view {
	for _, v := range s.views {
		if v.pkg.Name == ref.Package && v.def.Name == ref.View {
			return v
		}
	}
	return nil
}
