package engine

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/quarantine"
	"federator.dev/federator/pkg/policy/internal/state"
)

// plan is what concerns the objects of one kind.
type plan struct {
	bounds []*bound   // that judge them
	keyed  []*bound   // that judge keys of views, with matching by labels
	views  []*view    // that they feed
	mask   *mask.Mask // what any of bounds reads of the object
	fleet  *mask.Mask // what is read of it through data.fleet
	read   *mask.Mask // what is read of it at all: by bounds, views and through data.fleet
}

func (e *Engine) planOf(kind aggregate.Kind) *plan {
	if p, ok := e.plans[kind]; ok {
		return p
	}
	p := &plan{}
	for _, b := range e.bounds {
		for k, m := range b.pkg.Reads.Fleet {
			if k.Kind == kind {
				p.fleet = mask.Union(p.fleet, m)
			}
		}
		switch {
		case !state.Feeds(b.pkg, kind):
		case b.pkg.Subject == module.ObjectSubject:
			p.bounds = append(p.bounds, b)
			p.mask = mask.Union(p.mask, b.mask)
		case b.pkg.Subject == module.ViewSubject && b.sel.Labels != nil:
			p.keyed = append(p.keyed, b)
		}
	}
	for _, v := range e.views {
		if state.Feeds(v.Pkg, kind) {
			p.views = append(p.views, v)
		}
	}
	p.read = mask.Union(p.mask, p.fleet)
	for _, v := range p.views {
		p.read = mask.Union(p.read, v.Def.Mask)
	}
	e.plans[kind] = p
	return p
}

func (e *Engine) viewOf(pkg, name string) *view {
	i, ok := slices.BinarySearchFunc(e.views, [2]string{pkg, name}, func(v *view, at [2]string) int {
		return cmp.Or(strings.Compare(v.Pkg.Name, at[0]), strings.Compare(v.Def.Name, at[1]))
	})
	if !ok {
		return nil
	}
	return e.views[i]
}

// plan makes what a set and bindings need, taking what stays the same from the
// engine. renewed are those that must be evaluated anew.
func (e *Engine) plan(set *module.Set, bindings []binding.Binding) (bounds []*bound, views []*view, renewed map[any]bool, err error) {
	if bindings, err = binding.Validate(set, bindings); err != nil {
		return nil, nil, nil, err
	}
	renewed = map[any]bool{}
	prints := set.Fingerprints()
	changed := map[module.ViewRef]bool{}
	for _, pkg := range set.Packages {
		for _, def := range pkg.Views {
			old := e.viewOf(pkg.Name, def.Name)
			q, err := prepare(set.Compiler, pkg.Name+".view."+def.Name, true)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("view %s.%s: %w", pkg.Name, def.Name, err)
			}
			v := &view{query: q, pins: pins(pkg)}
			if old != nil && e.prints[pkg.Name] == prints[pkg.Name] && sameSubjects(old.Pkg, pkg) {
				v.View, v.score, v.overran = old.Of(pkg, def), old.score, old.overran
			} else {
				v.View, v.score = matview.New(e.nextID, pkg, def), &quarantine.Scores{}
				e.nextID++
				renewed[v] = true
				changed[module.ViewRef{Package: pkg.Name, View: def.Name}] = true
			}
			views = append(views, v)
		}
	}
	slices.SortFunc(views, func(a, b *view) int {
		return cmp.Or(strings.Compare(a.Pkg.Name, b.Pkg.Name), strings.Compare(a.Def.Name, b.Def.Name))
	})
	for _, binding := range bindings {
		b, fresh, err := e.bind(set, binding, prints, changed)
		if err != nil {
			return nil, nil, nil, err
		}
		if fresh {
			renewed[b] = true
		}
		bounds = append(bounds, b)
	}
	slices.SortFunc(bounds, func(a, b *bound) int { return strings.Compare(a.Name, b.Name) })
	return bounds, views, renewed, nil
}

// bind makes a bound, or takes over the one whose verdicts stay what they are.
func (e *Engine) bind(set *module.Set, spec binding.Binding, prints map[string]string, changed map[module.ViewRef]bool) (*bound, bool, error) {
	pkg := set.Package(spec.Package)
	sel, err := binding.Compile(&spec)
	if err != nil {
		return nil, false, err
	}
	q, err := prepare(set.Compiler, pkg.Name+".violation", !pkg.Reads.OfFleet())
	if err != nil {
		return nil, false, fmt.Errorf("%w %q: %w", binding.ErrInvalid, spec.Name, err)
	}
	b := &bound{Binding: spec, pkg: pkg, sel: sel, query: q, mask: pkg.Reads.Object, pins: pins(pkg), hash: prints[pkg.Name]}
	b.alike = alike(b)
	old := e.boundOf(spec.Name)
	same := old != nil && old.hash == b.hash && samePackage(old.pkg, pkg) && sameBinding(old.Binding, spec) && !reads(pkg, changed)
	if !same {
		b.id = e.nextID
		e.nextID++
		b.counters = &counters{}
		b.clear()
		return b, true, nil
	}
	b.id, b.Verdicts, b.overran = old.id, old.Verdicts, old.overran
	b.sum, b.sums, b.refused = old.sum, old.sums, old.refused
	b.selected, b.visible, b.tolerated = old.selected, old.visible, old.tolerated
	b.counters = old.counters
	return b, false, nil
}

func (e *Engine) boundOf(name string) *bound {
	i, ok := slices.BinarySearchFunc(e.bounds, name, func(b *bound, name string) int { return strings.Compare(b.Name, name) })
	if !ok {
		return nil
	}
	return e.bounds[i]
}

// sameSubjects reports whether two packages whose rules are the same are of the same
// kinds.
func sameSubjects(a, b *module.Package) bool {
	return a.AnyKind == b.AnyKind && slices.Equal(a.Kinds, b.Kinds)
}

// reads reports whether a package reads one of some views, its own included.
func reads(pkg *module.Package, views map[module.ViewRef]bool) bool {
	for v, is := range views {
		if is && (v.Package == pkg.Name || slices.Contains(pkg.Reads.Views, v)) {
			return true
		}
	}
	return false
}

// sameBinding reports whether two bindings give the same verdicts.
func sameBinding(a, b binding.Binding) bool {
	a.Mode, b.Mode = "", ""
	return reflect.DeepEqual(a, b)
}

// samePackage reports whether what the METADATA says of two packages whose rules are
// the same gives the same verdicts.
func samePackage(a, b *module.Package) bool {
	return sameSubjects(a, b) && a.Subject == b.Subject &&
		a.SubjectView == b.SubjectView && slices.Equal(a.Remedies, b.Remedies) && reflect.DeepEqual(a.Reads, b.Reads)
}

func pins(pkg *module.Package) map[aggregate.Kind]string {
	pins := map[aggregate.Kind]string{}
	for _, k := range pkg.Kinds {
		if k.Version != "" {
			pins[k.Kind] = k.Version
		}
	}
	return pins
}
