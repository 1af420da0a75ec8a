package state

import (
	"iter"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
)

// kindsRead are the kinds that a package reads of the fleet, including those that
// contribute to the views that it reads, sorted.
func (s *Parts) kindsRead(p *module.Package) (kinds module.KindSet) {
	seen := map[module.ViewRef]bool{}
	var follow func(p *module.Package)
	follow = func(p *module.Package) {
		for _, refs := range [][]module.KindRef{p.Reads.ByName, p.Reads.Objects, p.Reads.Own} {
			kinds.AddKinds(refs)
		}
		views := p.Reads.Views
		if p.Subject == module.ViewSubject {
			views = append(slices.Clone(views), module.ViewRef{Package: p.Name, View: p.SubjectView})
		}
		for _, ref := range views {
			v := s.View(ref)
			if v == nil || seen[ref] {
				continue
			}
			seen[ref] = true
			kinds.Add(v.Pkg.Evaluates())
			follow(v.Pkg)
		}
	}
	follow(p)
	return kinds
}

func (s *Parts) View(ref module.ViewRef) *matview.View {
	for _, v := range s.Views {
		if v.Pkg.Name == ref.Package && v.Def.Name == ref.View {
			return v
		}
	}
	return nil
}

// ReadsView reports whether a package has or reads a view.
func ReadsView(p *module.Package, v *matview.View) bool {
	return v.Pkg.Name == p.Name || slices.Contains(p.Reads.Views, module.ViewRef{Package: v.Pkg.Name, View: v.Def.Name})
}

// KindsOf yields the kinds that a package names.
func KindsOf(pkg *module.Package, s *fleetview.View) iter.Seq[aggregate.Kind] {
	return slices.Values(pkg.Evaluates().Among(s.Kinds()))
}
