package engine

import (
	"context"
	"slices"
	"strings"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/quarantine"
	"federator.dev/federator/pkg/policy/internal/value"
)

// lookup is what a rewritten reference to data.inventory looks for.
type lookup struct {
	mode  string // see module.LookupPath
	known inventoryPath
	none  bool   // a step is not a string: nothing is there
	key   string // of an index
}

func decodeLookup(s string) lookup {
	parts := strings.SplitN(s, "\x00", 6)
	if len(parts) != 6 {
		return lookup{none: true}
	}
	l := lookup{mode: parts[0], key: parts[5], none: slices.Contains(parts[:5], module.NoStep)}
	for i, to := range []*string{&l.known.namespace, &l.known.apiVersion, &l.known.kind, &l.known.name} {
		if parts[i+1] != module.UnknownStep {
			*to = parts[i+1]
			l.none = l.none || *to == ""
		}
	}
	return l
}

// unindexed is the key of objects whose keys could not be found: every lookup finds them.
const unindexed = "?"

// contributeIndex finds the keys of an object.
func (w *worker) contributeIndex(ctx context.Context, v *view, ref aggregate.Ref, object value.Value, err error) matview.Contribution {
	limit := w.e.opts.Limits.Contribution
	every := matview.NewContribution(ref, keysDocument([]string{unindexed}), limit)
	if err != nil {
		return every
	}
	if !object.Defined() {
		return matview.Contribution{}
	}
	defer w.meter.LockThread()()
	w.reset(nil, ref.Member)
	keys, err := w.indexKeys(ctx, v, nil, object)
	if err == nil && v.ofFleet { // subjects of other members find it under another name
		keys, err = w.indexKeys(ctx, v, keys, withMember(object, &ref, ref.Member+"/"))
	}
	if err != nil {
		return every
	}
	if len(keys) == 0 {
		return matview.Contribution{}
	}
	if c := matview.NewContribution(ref, keysDocument(keys), limit); !c.Failed() {
		return c
	}
	return every
}

// keysDocument is what a view has of an object that is found by keys.
func keysDocument(keys []string) value.Value {
	pairs := make([]value.Value, 0, 2*len(keys))
	for _, key := range keys {
		pairs = append(pairs, value.Text(key), value.SetOf([]value.Value{value.True}))
	}
	v, _ := (*value.Arena)(nil).Object(pairs) // equal keys have equal values
	return v
}

// indexKeys adds the keys of an object.
func (w *worker) indexKeys(ctx context.Context, v *view, to []string, object value.Value) ([]string, error) {
	w.inputs.Reset()
	found, _, err := w.run(ctx, v.query, w.inputs.Single("object", object))
	w.e.viewEvaluations.Add(1)
	for _, key := range found {
		to = append(to, module.IndexKey(key.AST()))
	}
	return to, err
}

// planIndexes makes the indexes of templates that have bindings, reusing what stays the
// same. New ones have no ID.
func (e *Engine) planIndexes(set *module.Set, bindings []slotted) []*view {
	var out []*view
	for _, pkg := range set.Packages {
		if !slices.ContainsFunc(bindings, func(b slotted) bool { return b.Package == pkg.Name }) {
			continue
		}
		ofFleet := slices.ContainsFunc(bindings, func(b slotted) bool { return b.Package == pkg.Name && b.FleetInventory() })
		for i := range pkg.Indexes {
			ix := &pkg.Indexes[i]
			of, def := &module.Package{Name: pkg.Name, Source: pkg.Source}, module.View{Name: ix.Name}
			for _, kind := range ix.Kinds {
				of.Kinds = append(of.Kinds, module.KindRef{Kind: kind})
				def.Mask = mask.Union(def.Mask, pkg.Reads.Fleet[module.KindRef{Kind: kind}])
			}
			v := &view{index: ix, ofFleet: ofFleet, identity: e.identityOf(set, pkg, ix.Name, ofFleet, true), query: query{body: ix.Body, compiler: pkg.Compiler, lenient: true, key: ix.Key}}
			e.compile(&v.query)
			if old := e.heldView(set, pkg, ix.Name, func(v *view) bool { return sameSubjects(v.Pkg, of) && v.ofFleet == ofFleet }); old != nil {
				v.View, v.scores = old.WithPackage(of, def), old.scores
			} else {
				v.View, v.scores = matview.New(0, of, def), &quarantine.Scores{}
			}
			out = append(out, v)
		}
	}
	return out
}

// invalidateIndex marks the subjects that looked for a key in a member.
func (r *pass) invalidateIndex(v *view, member, key string) {
	if key == unindexed {
		r.markReadersOf(v)
		return
	}
	r.invalidate(readKey(readIndex, viewName(v.ID), member, key))
}

// markReadersOf marks all that a template's bindings have looked up.
func (r *pass) markReadersOf(v *view) {
	for _, b := range r.e.bindings {
		if b.pkg.Name == v.Pkg.Name {
			r.markReaders(b)
		}
	}
}

// invalidateExistence marks the subjects that asked whether a kind has objects, where that
// changes.
func (r *pass) invalidateExistence(d aggregate.Delta) {
	var s *fleetview.View
	switch {
	case d.Before.IsZero():
		s = r.was
	case d.After.IsZero():
		s = r.after
	default:
		return
	}
	for range s.Objects(d.Ref.Kind, d.Ref.Member) {
		return
	}
	r.invalidate(readKey(readExists, string(d.Ref.Kind), d.Ref.Member))
}

// templateData reads a path below data as a template sees it.
func (ev *evaluation) templateData(path []string) (value.Value, error) {
	switch {
	case path[0] == "inventory":
		return ev.inventory(path[1:])
	case path[0] != module.LookupRoot || len(path) < 3:
		return value.Value{}, nil
	}
	l := decodeLookup(path[1])
	if l.none {
		return value.Value{}, nil
	}
	steps := path[2:]
	p, rest := parseInventory(steps)
	for _, step := range [][2]*string{
		{&p.namespace, &l.known.namespace}, {&p.apiVersion, &l.known.apiVersion}, {&p.kind, &l.known.kind}, {&p.name, &l.known.name},
	} {
		if *step[0] == "" {
			*step[0] = *step[1]
		}
	}
	t := fleetdoc.NewTree(steps[:len(steps)-len(rest)])
	if err := ev.lookup(t, &l, p); err != nil {
		return value.Value{}, err
	}
	return inventoryValue(t, path, rest)
}

func (ev *evaluation) lookup(t *tree, l *lookup, p inventoryPath) error {
	switch l.mode {
	case module.LookupPath:
		return ev.inventoryTree(t, p)
	case module.LookupExists:
		if ev.ofFleet() {
			return ev.inventoryTree(t, p)
		}
		return ev.exists(t, p)
	}
	v := ev.w.e.view(ev.binding.pkg.Name, l.mode)
	if v == nil || v.OverLimit != "" {
		return ev.inventoryTree(t, p)
	}
	if ev.ofFleet() {
		ev.record(viewKey(v, l.key))
		ev.askView(viewKey(v, l.key), v, l.key)
		ev.needsUnindexed(v)
	} else {
		ev.record(readKey(readIndex, viewName(v.ID), ev.inventoryOf, l.key))
	}
	for k := range ev.inventoryKinds(p) {
		if ev.ofFleet() {
			ev.reads.AddAll(k.Kind)
		} else {
			ev.readsInventoryOf(k.Kind)
		}
		for _, key := range []string{l.key, unindexed} {
			if err := ev.candidates(t, v, k, p, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// candidates adds the objects of a kind that an index has under a key.
func (ev *evaluation) candidates(t *tree, v *view, k *module.InventoryKind, p inventoryPath, key string) error {
	entries := v.EntriesIn(key, k.Kind, ev.inventoryOf)
	if ev.ofFleet() {
		entries = v.Entries(key)
	}
	for e := range entries {
		ref := e.Object.Ref
		if ref.Kind != k.Kind || ev.ofFleet() && !ev.binding.visible.Has(ref.Member) {
			continue
		}
		ev.record(readKey(readObject, string(ref.Kind), ref.Member, ref.Namespace, ref.Name))
		o, ok := ev.w.e.fleet.Get(ref)
		if !ok {
			continue
		}
		prefix := ""
		if ref.Member != ev.inventoryOf {
			prefix = ref.Member + "/"
		}
		if err := ev.putInventory(t, k, p, o, prefix); err != nil {
			return err
		}
	}
	return nil
}

// exists adds one object of each kind that a path may reach, if there is any.
func (ev *evaluation) exists(t *tree, p inventoryPath) error {
	for k := range ev.inventoryKinds(p) {
		ev.record(readKey(readExists, string(k.Kind), ev.inventoryOf))
		ev.readsInventoryOf(k.Kind)
		for o := range ev.w.e.fleet.Objects(k.Kind, ev.inventoryOf) {
			if err := ev.putInventory(t, k, p, o, ""); err != nil {
				return err
			}
			break
		}
	}
	return nil
}
