package policy

import (
	"context"
	"slices"

	"federator.dev/federator/pkg/policy/internal/module"
)

// Compare returns what other policies and bindings would change in the verdicts of a
// state, on its snapshot. It evaluates the bindings of which something differs, and
// costs what Configure does; Changes.After has these only, and Changes.Before has
// these and those that opts.Bindings have no more.
func Compare(ctx context.Context, s *State, opts EngineOptions) (*Changes, error) {
	bindings, err := ValidateBindings(opts.Set, opts.Bindings)
	if err != nil {
		return nil, err
	}
	prints := opts.Set.Fingerprints()
	changed := map[module.ViewRef]bool{}
	for _, pkg := range opts.Set.Packages {
		for _, def := range pkg.Views {
			ref := module.ViewRef{Package: pkg.Name, View: def.Name}
			old := s.viewOf(ref)
			changed[ref] = old == nil || s.prints[pkg.Name] != prints[pkg.Name] || !sameSubjects(old.pkg, pkg)
		}
	}
	same := map[string]bool{}
	bindings = slices.DeleteFunc(bindings, func(b Binding) bool {
		old, pkg := s.binding(b.Name), opts.Set.Package(b.Package)
		same[b.Name] = old != nil && s.prints[b.Package] == prints[b.Package] && samePackage(old.pkg, pkg) && old.pkg.Severity == pkg.Severity &&
			sameBinding(old.Binding, b) && !reads(pkg, changed)
		return same[b.Name]
	})
	before := *s
	before.bindings = slices.DeleteFunc(slices.Clone(s.bindings), func(b *bindingState) bool { return same[b.Name] })
	opts.Bindings = bindings
	after, err := Evaluate(ctx, opts, s.Snapshot)
	if err != nil {
		return nil, err
	}
	return &Changes{Before: &before, After: after, flipped: true}, nil
}
