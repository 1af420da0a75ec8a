package policy

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// plan makes what a set and bindings need, taking what stays the same from the
// engine. renewed are those that must be evaluated anew.
func (e *Engine) plan(set *Set, bindings []Binding) (bounds []*bound, views []*view, renewed map[any]bool, err error) {
	if bindings, err = ValidateBindings(set, bindings); err != nil {
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
			v := &view{pkg: pkg, def: def, query: q, pins: pins(pkg)}
			if old != nil && e.prints[pkg.Name] == prints[pkg.Name] && sameSubjects(old.pkg, pkg) {
				v.id, v.entries, v.failed, v.contribs = old.id, old.entries, old.failed, old.contribs
				v.bytes, v.held, v.over, v.blind = old.bytes, old.held, old.over, old.blind
				v.score, v.overran = old.score, old.overran
			} else {
				v.id = e.nextID
				e.nextID++
				v.score = &overruns{}
				v.clear()
				renewed[v] = true
				changed[module.ViewRef{Package: pkg.Name, View: def.Name}] = true
			}
			views = append(views, v)
		}
	}
	slices.SortFunc(views, func(a, b *view) int {
		return cmp.Or(strings.Compare(a.pkg.Name, b.pkg.Name), strings.Compare(a.def.Name, b.def.Name))
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
func (e *Engine) bind(set *Set, binding Binding, prints map[string]string, changed map[module.ViewRef]bool) (*bound, bool, error) {
	pkg := set.Package(binding.Package)
	sel, err := binding.compile()
	if err != nil {
		return nil, false, err
	}
	q, err := prepare(set.Compiler, pkg.Name+".violation", !pkg.Reads.OfFleet())
	if err != nil {
		return nil, false, fmt.Errorf("%w %q: %w", ErrBinding, binding.Name, err)
	}
	b := &bound{Binding: binding, pkg: pkg, sel: sel, query: q, mask: pkg.Reads.Object, pins: pins(pkg), hash: prints[pkg.Name]}
	b.alike = alike(b)
	old := e.boundOf(binding.Name)
	same := old != nil && old.hash == b.hash && samePackage(old.pkg, pkg) && sameBinding(old.Binding, binding) && !reads(pkg, changed)
	if !same {
		b.id = e.nextID
		e.nextID++
		b.counters = &counters{}
		b.clear()
		return b, true, nil
	}
	b.id, b.defaults, b.records, b.tallies = old.id, old.defaults, old.records, old.tallies
	b.owned, b.overran = old.owned, old.overran
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
func sameBinding(a, b Binding) bool {
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
