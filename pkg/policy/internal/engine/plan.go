package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/lineprofile"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/quarantine"
)

// kindPlan is what depends on the objects of one kind.
type kindPlan struct {
	bindings        []*boundBinding // whose subjects they are
	matchedByLabels []*boundBinding // about keys of views, and matching by labels
	views           []*view         // to which they contribute
	objectMask      *mask.Mask      // what any of bindings reads of the object
	fleetMask       *mask.Mask      // what is read of it through data.fleet
	readMask        *mask.Mask      // the union: by bindings, views and through data.fleet
	reading         *reading
}

func (e *Engine) kindPlan(kind aggregate.Kind) *kindPlan {
	if p, ok := e.kindPlans[kind]; ok {
		return p
	}
	p := &kindPlan{}
	for _, b := range e.bindings {
		for k, m := range b.pkg.Reads.Fleet {
			if k.Kind == kind {
				p.fleetMask = mask.Union(p.fleetMask, m)
			}
		}
		if kind == namespaceKind && b.sel.ByNamespaceLabels() {
			p.fleetMask = mask.Union(p.fleetMask, mask.Path(mask.Whole(), "metadata", "labels"))
		}
		switch {
		case !b.pkg.HasKind(kind) || !b.sel.SelectsKind(kind):
		case b.pkg.Subject == module.ObjectSubject:
			p.bindings = append(p.bindings, b)
			p.objectMask = mask.Union(p.objectMask, b.mask)
		case b.pkg.Subject == module.ViewSubject && b.sel.Labels != nil:
			p.matchedByLabels = append(p.matchedByLabels, b)
		}
	}
	for _, v := range e.views {
		if v.Pkg.HasKind(kind) {
			p.views = append(p.views, v)
		}
	}
	p.readMask = mask.Union(p.objectMask, p.fleetMask)
	for _, v := range p.views {
		p.readMask = mask.Union(p.readMask, v.Def.Mask)
	}
	p.reading = newReading(uint32(len(e.kindPlans)), p)
	e.kindPlans[kind] = p
	return p
}

// reading tells whether objects of a kind differ in what is read of them. What reads has a place
// among the digests of a body, and -1 where it reads nothing.
type reading struct {
	number          uint32 // of the kind in the engine
	fan             *document.Fan
	all             []uint64 // a bit for each place
	bindings, views []int    // the places of those of the plan
	fleet           int
	sharing         map[*boundBinding]int // the places of bindings whose verdicts twins share
}

func newReading(number uint32, p *kindPlan) *reading {
	r := &reading{number: number, sharing: map[*boundBinding]int{}}
	var masks []*mask.Mask
	places := map[string][]int{} // by the text, which others may have, too
	place := func(m *mask.Mask) int {
		if m == nil {
			return -1
		}
		text := m.String()
		for _, at := range places[text] {
			if masks[at].Equal(m) {
				return at
			}
		}
		places[text] = append(places[text], len(masks))
		masks = append(masks, m)
		return len(masks) - 1
	}
	for _, b := range p.bindings {
		at := place(b.mask)
		r.bindings = append(r.bindings, at)
		// A version of an object has no twin in these fields.
		if b.memoizable && b.mask.At("metadata", "uid") == nil && b.mask.At("metadata", "resourceVersion") == nil {
			r.sharing[b] = at
		}
	}
	for _, v := range p.views {
		r.views = append(r.views, place(v.Def.Mask))
	}
	r.fleet = place(p.fleetMask)
	r.fan = document.NewFan(masks)
	r.all = make([]uint64, r.fan.Words())
	for at := range masks {
		r.all[at/64] |= 1 << (at % 64)
	}
	return r
}

// digests digests a body into the memory of into.
func (r *reading) digests(into []document.Digest, body []byte, wanted []uint64) ([]document.Digest, error) {
	into = slices.Grow(into[:0], r.fan.Len())[:r.fan.Len()]
	return into, r.fan.Digests(body, wanted, into)
}

func (e *Engine) view(pkg, name string) *view { return findView(e.views, pkg, name) }

func findView(views []*view, pkg, name string) *view {
	i, ok := slices.BinarySearchFunc(views, [2]string{pkg, name}, func(v *view, at [2]string) int {
		return cmp.Or(strings.Compare(v.Pkg.Name, at[0]), strings.Compare(v.Def.Name, at[1]))
	})
	if !ok {
		return nil
	}
	return views[i]
}

// plan compiles what a set and bindings need, reusing what stays the same. changed are
// the views and bindings that must be evaluated again.
func (e *Engine) plan(set *module.Set, bindings []binding.Binding) (bound []*boundBinding, views []*view, changed map[any]bool, err error) {
	if bindings, err = binding.Validate(set, bindings); err != nil {
		return nil, nil, nil, err
	}
	changed = map[any]bool{}
	planned := slots(bindings)
	used := packagesUsed(set, planned)
	for _, pkg := range set.Packages {
		if set.IsFormer(pkg) && !used[pkg.Name] {
			continue
		}
		for _, def := range pkg.Views {
			old := e.heldView(set, pkg, def.Name, func(v *view) bool { return sameSubjects(v.Pkg, pkg) })
			compiler := cmp.Or(pkg.Compiler, set.Compiler)
			body, err := module.Query(compiler, pkg.Path()+".view."+def.Name)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("view %s.%s: %w", pkg.Name, def.Name, err)
			}
			q := query{body: body, compiler: compiler, indexing: true}
			e.compile(&q)
			v := &view{query: q, pins: pinnedVersions(pkg), identity: e.identityOf(set, pkg, def.Name, false, false)}
			if old != nil {
				v.View, v.scores, v.retries = old.WithPackage(pkg, def), old.scores, old.retries
			} else {
				v.View, v.scores = matview.New(e.nextID, pkg, def), &quarantine.Scores{}
				e.nextID++
				changed[v] = true
			}
			views = append(views, v)
		}
	}
	indexes := e.planIndexes(set, planned)
	for _, v := range indexes {
		if v.View.ID == 0 {
			v.View.ID = e.nextID
			e.nextID++
			changed[v] = true
		}
	}
	views = append(views, indexes...)
	for _, v := range views {
		v.ByObject, v.space = e.opts.Exports && v.identity != "", interest.View(v.identity)
	}
	slices.SortFunc(views, func(a, b *view) int {
		return cmp.Or(strings.Compare(a.Pkg.Name, b.Pkg.Name), strings.Compare(a.Def.Name, b.Def.Name))
	})
	taken := map[*boundBinding]bool{}
	for _, spec := range planned {
		b, fresh, err := e.bind(set, spec, views, taken)
		if err != nil {
			return nil, nil, nil, err
		}
		if fresh {
			changed[b] = true
		}
		bound = append(bound, b)
	}
	slices.SortFunc(bound, func(a, b *boundBinding) int { return strings.Compare(a.slot, b.slot) })
	pair(bound)
	return bound, views, changed, nil
}

// bind compiles a binding, reusing the verdicts of the present one if they stay the
// same.
func (e *Engine) bind(set *module.Set, spec slotted, views []*view, taken map[*boundBinding]bool) (*boundBinding, bool, error) {
	pkg := set.Package(spec.Package)
	sel, err := binding.Compile(&spec.Binding)
	if err != nil {
		return nil, false, err
	}
	sel.Generated, sel.Manifests = e.opts.Generated, e.opts.Manifests
	compiler := cmp.Or(pkg.Compiler, set.Compiler)
	body, err := module.Query(compiler, pkg.Path()+".violation")
	if err != nil {
		return nil, false, fmt.Errorf("%w %q: %w", binding.ErrInvalid, spec.Name, err)
	}
	q := query{body: body, compiler: compiler, indexing: !pkg.Reads.OfFleet() && !pkg.Reads.Time && pkg.Reads.External == nil, lenient: pkg.IsTemplate()}
	e.compile(&q)
	b := &boundBinding{
		Binding: spec.Binding, slot: spec.slot, pkg: pkg, sel: sel, query: q, mask: pkg.Reads.Object, pins: pinnedVersions(pkg),
		fingerprint: set.Fingerprints()[pkg.Name],
	}
	b.Version = cmp.Or(spec.Version, set.Version(pkg.Name))
	if pkg.CEL != nil && pkg.Admission == nil {
		if b.celParams, err = celParams(&spec.Binding); err != nil {
			return nil, false, fmt.Errorf("%w %q: %w", binding.ErrInvalid, spec.Name, err)
		}
	}
	b.memoizable = memoizable(b)
	b.inputParts, b.fleetParts = fleetdoc.PartsOf(pkg.Reads.Member), fleetdoc.PartsOf(pkg.Reads.Members)
	old := e.heldBinding(b, views, taken)
	if old == nil {
		b.id = e.nextID
		e.nextID++
		b.counters, b.profile = &counters{}, &lineprofile.Profile{}
		b.clear()
		b.shown = e.shownOf(spec.Name)
		return b, true, nil
	}
	b.id, b.Verdicts, b.shown, b.retries = old.id, old.Verdicts, old.shown, old.retries
	b.heldBytes, b.heldByMember, b.refused = old.heldBytes, old.heldByMember, old.refused
	b.selected, b.visible, b.tolerated = old.selected, old.visible, old.tolerated
	b.counters = old.counters
	if b.profile = old.profile; e.set != set {
		b.profile = old.profile.Keep(func(file string) bool { return set.Of(pkg).SameText(e.set.Of(old.pkg), file) })
	}
	return b, false, nil
}

func (e *Engine) binding(slot string) *boundBinding {
	i, ok := slices.BinarySearchFunc(e.bindings, slot, func(b *boundBinding, slot string) int { return strings.Compare(b.slot, slot) })
	if !ok {
		return nil
	}
	return e.bindings[i]
}

// sameSubjects reports whether two packages with the same rules have subjects of the
// same kinds.
func sameSubjects(a, b *module.Package) bool {
	return a.AnyKind == b.AnyKind && slices.Equal(a.Groups, b.Groups) && slices.Equal(a.Kinds, b.Kinds)
}

// readsAny reports whether a package reads one of some views, including its own.
func readsAny(pkg *module.Package, views map[module.ViewRef]bool) bool {
	for v, is := range views {
		if is && (v.Package == pkg.Name || slices.Contains(pkg.Reads.Views, v)) {
			return true
		}
	}
	return false
}

// sameBinding reports whether two bindings give the same verdicts.
func sameBinding(a, b binding.Binding) bool {
	return a.IsSame(&b)
}

// samePackage reports whether the METADATA of two packages with the same rules gives
// the same verdicts.
func samePackage(a, b *module.Package) bool {
	return sameSubjects(a, b) && a.Subject == b.Subject && len(a.Reads.Views) == len(b.Reads.Views) && // whose names depend on the versions
		a.SubjectView == b.SubjectView && slices.Equal(a.Remedies, b.Remedies) && a.Reads.EqualButViews(&b.Reads)
}

func pinnedVersions(pkg *module.Package) map[aggregate.Kind]string {
	pins := map[aggregate.Kind]string{}
	for _, k := range pkg.Kinds {
		if k.Version != "" {
			pins[k.Kind] = k.Version
		}
	}
	return pins
}
