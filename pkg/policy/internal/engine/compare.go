package engine

import (
	"context"
	"slices"
	"time"

	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
)

// Compare returns how other policies and bindings would change the verdicts of a state,
// on its snapshot, as of its time, or of the present by opts.Clock if that is set. It evaluates the bindings that differ, at the cost of Configure.
// Changes.After has only these; Changes.Before has these and those that opts.Bindings
// no longer has.
func Compare(ctx context.Context, s *state.State, opts Options) (*Changes, error) {
	bindings, _, same, err := differing(s, opts)
	if err != nil {
		return nil, err
	}
	before := state.Without(s, same)
	opts.Bindings = bindings
	opts.AsOf = presentOf(s, opts.Clock)
	after, err := evaluateAt(ctx, opts, s.Snapshot, s.AsOf.Unix())
	if err != nil {
		return nil, err
	}
	return &Changes{Before: before, After: after, compareAll: true}, nil
}

// presentOf returns the time as of which others are compared with a state. A state is published when something
// changes, which may be long ago: its verdicts are those of the present as well, unless one of their instants has
// passed since.
func presentOf(s *state.State, clock func() time.Time) time.Time {
	at := time.Unix(state.PartsOf(s).Clock, 0)
	if clock == nil {
		return at
	}
	now := clock().Truncate(time.Second)
	if !s.Wake.IsZero() && !now.Before(s.Wake) {
		now = s.Wake.Add(-time.Second)
	}
	if now.After(at) {
		return now
	}
	return at
}

// differing returns the bindings whose verdicts may differ from those of a state, the views that
// do, and the names of the bindings that stay the same.
func differing(s *state.State, opts Options) (bindings []binding.Binding, changed map[module.ViewRef]bool, same map[string]bool, err error) {
	if bindings, err = binding.Validate(opts.Set, opts.Bindings); err != nil {
		return nil, nil, nil, err
	}
	prints := opts.Set.Fingerprints()
	changed = map[module.ViewRef]bool{}
	for _, pkg := range opts.Set.Packages {
		for _, def := range pkg.Views {
			ref := module.ViewRef{Package: pkg.Name, View: def.Name}
			old := state.PartsOf(s).View(ref)
			changed[ref] = old == nil || state.PartsOf(s).Fingerprints[pkg.Name] != prints[pkg.Name] || !sameSubjects(old.Pkg, pkg)
		}
	}
	same = map[string]bool{}
	bindings = slices.DeleteFunc(bindings, func(b binding.Binding) bool {
		old, pkg := state.PartsOf(s).Binding(b.Name), opts.Set.Package(b.Package)
		same[b.Name] = old != nil && state.PartsOf(s).Fingerprints[b.Package] == prints[b.Package] && samePackage(old.Pkg, pkg) && old.Pkg.Severity == pkg.Severity &&
			sameBinding(old.Binding, b) && !readsAny(pkg, changed)
		return same[b.Name]
	})
	return bindings, changed, same, nil
}
