package aggregate_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"federator.dev/federator/pkg/aggregate"
)

func labelMap(ls []aggregate.Label) labels.Set {
	m := labels.Set{}
	for _, l := range ls {
		m[l.Key] = l.Value
	}
	return m
}

// sameObject returns how an object of the index differs from the model's.
func sameObject(got aggregate.Object, want *obj) error {
	if got.IsZero() || want == nil {
		if got.IsZero() == (want == nil) {
			return nil
		}
		return fmt.Errorf("is there: %t, want %t", !got.IsZero(), want != nil)
	}
	body, err := got.AppendBody([]byte("prefix "))
	if err != nil {
		return fmt.Errorf("%s: body: %w", want.ref, err)
	}
	switch {
	case got.Ref() != want.ref:
		return fmt.Errorf("ref %q, want %q", got.Ref(), want.ref)
	case got.UID() != want.uid:
		return fmt.Errorf("%s: uid %q, want %q", want.ref, got.UID(), want.uid)
	case got.ResourceVersion() != want.rv:
		return fmt.Errorf("%s: resourceVersion %q, want %q", want.ref, got.ResourceVersion(), want.rv)
	case got.Revision() != want.rev:
		return fmt.Errorf("%s: revision %d, want %d", want.ref, got.Revision(), want.rev)
	case got.APIVersion() != want.apiVersion:
		return fmt.Errorf("%s: version %q, want %q", want.ref, got.APIVersion(), want.apiVersion)
	case !slices.Equal(got.Labels(), want.labels):
		return fmt.Errorf("%s: labels %q, want %q", want.ref, got.Labels(), want.labels)
	case !slices.Equal(got.Owners(), want.owners):
		return fmt.Errorf("%s: owners %v, want %v", want.ref, got.Owners(), want.owners)
	case !bytes.Equal(body, append([]byte("prefix "), want.body...)):
		return fmt.Errorf("%s: body %q, want %q", want.ref, body, want.body)
	case got.Size() <= 0:
		return fmt.Errorf("%s: size %d", want.ref, got.Size())
	}
	for _, l := range want.labels {
		if v, ok := got.Label(l.Key); !ok || v != l.Value {
			return fmt.Errorf("%s: label %q is %q, %t", want.ref, l.Key, v, ok)
		}
	}
	return nil
}

func sameObjects(got []aggregate.Object, want []*obj) error {
	for i := range max(len(got), len(want)) {
		var g aggregate.Object
		var w *obj
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if err := sameObject(g, w); err != nil {
			return fmt.Errorf("object %d of %d, want %d: %w", i, len(got), len(want), err)
		}
	}
	return nil
}

// check returns how a snapshot differs from the model of its revision: all of
// its scopes and members, and the answers to a few random questions.
func check(snap *aggregate.Snapshot, want *state, rng *rand.Rand) error {
	if snap.Revision() != want.rev {
		return fmt.Errorf("revision %d, want %d", snap.Revision(), want.rev)
	}
	if err := checkMembers(snap, want); err != nil {
		return err
	}
	if err := checkScopes(snap, want); err != nil {
		return err
	}
	sum := 0
	for scope := range snap.Scopes("") {
		sum += scope.Objects
	}
	if n, _ := snap.Size(); n != sum {
		return fmt.Errorf("%d objects in all, want %d", n, sum)
	}
	for range 6 {
		q := randomQuery(rng)
		if err := checkQuery(snap, want, q, rng); err != nil {
			return fmt.Errorf("%+v: %w", q, err)
		}
	}
	others := rand.New(rand.NewPCG(uint64(want.rev), 0)) // a mix, not a secret
	for range 3 {
		q, name := randomQuery(others), pick(others, names)
		q.NamePrefix = name[:others.IntN(len(name)+1)]
		if err := checkQuery(snap, want, q, others); err != nil {
			return fmt.Errorf("%+v: %w", q, err)
		}
	}
	if err := checkFields(snap, want); err != nil {
		return err
	}
	if err := checkNamespaces(snap, want); err != nil {
		return err
	}
	return checkPoints(snap, want, rng)
}

func checkFields(snap *aggregate.Snapshot, want *state) error {
	for _, name := range []string{"spec.nodeName", "status.phase"} {
		indexed, inFirst := true, true
		for _, o := range want.query(aggregate.Query{Kind: "Pod"}) {
			indexed = indexed && !listed(o.body, name)
			inFirst = inFirst && (o.ref.Member != memberNames[0] || !listed(o.body, name))
			got, ok := snap.Get(o.ref)
			if !ok {
				return fmt.Errorf("get %s: nothing", o.ref)
			}
			value, ok := got.Field(name)
			if w, there := field(o.body, name); value != w && there || ok != there {
				return fmt.Errorf("%s: %s is %q, %t, want %q, %t", o.ref, name, value, ok, w, there)
			}
		}
		if got := snap.Indexed("Pod", name, nil); got != indexed {
			return fmt.Errorf("%s indexed: %t, want %t", name, got, indexed)
		}
		if got := snap.Indexed("Pod", name, memberNames[:1]); got != inFirst {
			return fmt.Errorf("%s indexed in %s: %t, want %t", name, memberNames[0], got, inFirst)
		}
	}
	if snap.Indexed("Pod", "spec.other", nil) {
		return errors.New("a field that is not declared is indexed")
	}
	return nil
}

func checkNamespaces(snap *aggregate.Snapshot, want *state) error {
	for _, m := range memberNames {
		for _, k := range kinds {
			counts, got := map[string]int{}, map[string]int{}
			if sc := want.scopes[scopeKey{k, m}]; sc != nil {
				for _, key := range sc.keys() {
					counts[key.namespace]++
				}
			}
			last := ""
			for namespace, n := range snap.Namespaces(m, k) {
				if len(got) > 0 && namespace <= last {
					return fmt.Errorf("namespace %q after %q", namespace, last)
				}
				got[namespace], last = n, namespace
			}
			if !maps.Equal(counts, got) {
				return fmt.Errorf("%s %s: namespaces %v, want %v", m, k, got, counts)
			}
		}
	}
	return nil
}

func checkMembers(snap *aggregate.Snapshot, want *state) error {
	names := slices.Sorted(maps.Keys(want.members))
	i := 0
	for m := range snap.Members() {
		if i >= len(names) || !sameMember(&m, want.members[names[i]]) {
			return fmt.Errorf("member %d is %+v, want %v", i, m, names)
		}
		if one, ok := snap.Member(m.Name); !ok || !sameMember(&one, m) {
			return fmt.Errorf("member %s is %+v, %t", m.Name, one, ok)
		}
		i++
	}
	if i != len(names) {
		return fmt.Errorf("%d members, want %d", i, len(names))
	}
	if _, ok := snap.Member("nobody"); ok {
		return errors.New("a member that never joined is there")
	}
	return nil
}

func sameMember(a *aggregate.Member, b aggregate.Member) bool {
	return a != nil && a.Name == b.Name && a.UID == b.UID && a.Version == b.Version &&
		slices.Equal(a.Labels, b.Labels) && slices.Equal(a.APIs, b.APIs)
}

func checkScopes(snap *aggregate.Snapshot, want *state) error {
	keys := want.scopeKeys()
	i := 0
	for info := range snap.Scopes("") {
		if i >= len(keys) || keys[i] != (scopeKey{info.Kind, info.Member}) {
			return fmt.Errorf("scope %d is %+v, want %v", i, info, keys)
		}
		sc := want.scopes[keys[i]]
		one, ok := snap.Scope(info.Member, info.Kind)
		if !ok || one != info || info.Status != sc.status || info.Version != sc.version || info.Objects != len(sc.objects) {
			return fmt.Errorf("scope %+v (Scope: %+v), want %s %v with %d objects", info, one, sc.version, sc.status, len(sc.objects))
		}
		i++
	}
	if i != len(keys) {
		return fmt.Errorf("%d scopes, want %d", i, len(keys))
	}
	for name := range want.members {
		for info := range snap.Scopes(name) {
			if want.scopes[scopeKey{info.Kind, name}] == nil || info.Member != name {
				return fmt.Errorf("member %s has scope %+v", name, info)
			}
			i--
		}
	}
	if i != 0 {
		return fmt.Errorf("%d scopes are not found by their member", i)
	}
	var kinds []aggregate.Kind
	for _, k := range keys {
		kinds = append(kinds, k.kind)
	}
	if got := slices.Collect(snap.Kinds()); !slices.Equal(got, slices.Compact(kinds)) {
		return fmt.Errorf("kinds %v, want %v", got, slices.Compact(kinds))
	}
	return nil
}

func checkQuery(snap *aggregate.Snapshot, want *state, q aggregate.Query, rng *rand.Rand) error {
	all := want.query(q)
	list, err := snap.List(q)
	if err != nil {
		return err
	}
	for range 2 { // a list can be read again
		if err := sameObjects(slices.Collect(list), all); err != nil {
			return err
		}
	}
	n, err := snap.Count(q)
	if err != nil {
		return err
	}
	if n != len(all) {
		return fmt.Errorf("count %d, want %d", n, len(all))
	}
	var pages []aggregate.Object
	size := 1 + rng.IntN(5)
	for {
		list, err := snap.List(q)
		if err != nil {
			return err
		}
		n := 0
		for o := range list {
			pages = append(pages, o)
			if n++; n == size {
				break
			}
		}
		if n < size {
			break
		}
		q.After = pages[len(pages)-1].Position()
	}
	if err := sameObjects(pages, all); err != nil {
		return fmt.Errorf("by pages of %d: %w", size, err)
	}
	return nil
}

func checkPoints(snap *aggregate.Snapshot, want *state, rng *rand.Rand) error {
	for range 10 {
		ref := aggregate.Ref{Member: pick(rng, memberNames), Kind: pick(rng, kinds), Namespace: pick(rng, namespaces), Name: pick(rng, names)}
		var w *obj
		if sc := want.scopes[scopeKey{ref.Kind, ref.Member}]; sc != nil {
			w = sc.objects[objKey{ref.Namespace, ref.Name}]
		}
		got, ok := snap.Get(ref)
		if ok != (w != nil) {
			return fmt.Errorf("get %s: %t", ref, ok)
		}
		if err := sameObject(got, w); err != nil {
			return fmt.Errorf("get %s: %w", ref, err)
		}
	}
	kind, ns, name := pick(rng, kinds), pick(rng, namespaces), pick(rng, names)
	uid, member := pick(rng, ownerUIDs), pick(rng, append([]string{""}, memberNames...))
	var named, owned []*obj
	for _, o := range want.query(aggregate.Query{Kind: kind}) {
		if o.ref.Namespace == ns && o.ref.Name == name {
			named = append(named, o)
		}
		has := slices.ContainsFunc(o.owners, func(w aggregate.Owner) bool { return w.UID == uid })
		if has && (member == "" || o.ref.Member == member) {
			owned = append(owned, o)
		}
	}
	if err := sameObjects(slices.Collect(snap.Named(kind, ns, name)), named); err != nil {
		return fmt.Errorf("named %s %q/%q: %w", kind, ns, name, err)
	}
	if err := sameObjects(slices.Collect(snap.Owned(kind, member, uid)), owned); err != nil {
		return fmt.Errorf("owned by %q in %q: %w", uid, member, err)
	}
	return nil
}

func randomQuery(rng *rand.Rand) aggregate.Query {
	q := aggregate.Query{Kind: pick(rng, kinds)}
	if rng.IntN(3) == 0 {
		q.Namespace = pick(rng, namespaces)
	}
	if rng.IntN(4) == 0 {
		q.Name = pick(rng, names)
	}
	if rng.IntN(3) == 0 {
		for _, m := range memberNames {
			if rng.IntN(2) == 0 {
				q.Members = append(q.Members, m)
			}
		}
	}
	if rng.IntN(3) == 0 {
		q.After = aggregate.Position{Member: pick(rng, memberNames)}
		if rng.IntN(3) > 0 {
			q.After.Namespace, q.After.Name = pick(rng, namespaces), pick(rng, names)
		}
	}
	if rng.IntN(3) > 0 {
		q.Labels = randomSelector(rng)
	}
	if q.Kind == "Pod" && rng.IntN(3) == 0 {
		q.Fields = map[string]string{"spec.nodeName": pick(rng, nodes)}
		if rng.IntN(2) == 0 {
			q.Fields["status.phase"] = pick(rng, phases)
		}
	}
	return q
}

func randomSelector(rng *rand.Rand) labels.Selector {
	switch rng.IntN(10) {
	case 0:
		return labels.Everything()
	case 1:
		return labels.Nothing()
	case 2: // keys and values that a selector in words cannot have
		return labels.SelectorFromValidatedSet(labels.Set{pick(rng, labelKeys): pick(rng, labelValues)})
	}
	ops := []selection.Operator{
		selection.Equals, selection.DoubleEquals, selection.NotEquals, selection.In, selection.NotIn,
		selection.Exists, selection.DoesNotExist, selection.GreaterThan, selection.LessThan,
	}
	sel := labels.NewSelector()
	for range 1 + rng.IntN(3) {
		op := pick(rng, ops)
		var values []string
		switch op {
		case selection.Equals, selection.DoubleEquals, selection.NotEquals:
			values = []string{pick(rng, plainValues)}
		case selection.In, selection.NotIn:
			values = []string{pick(rng, plainValues), pick(rng, plainValues)}
		case selection.GreaterThan, selection.LessThan:
			values = []string{"5"}
		}
		r, err := labels.NewRequirement(pick(rng, plainKeys), op, values)
		if err != nil {
			panic(err)
		}
		sel = sel.Add(*r)
	}
	return sel
}
