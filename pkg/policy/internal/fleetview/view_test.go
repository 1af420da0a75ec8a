package fleetview_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/test/seed"
)

var (
	members = []string{"f/a", "f/b", "f/c", "f/d", "f/e"}
	kinds   = []aggregate.Kind{"ConfigMap", "Deployment.apps", "Pod"}
	names   = [][2]string{{"", "x"}, {"n", "x"}, {"n", "y"}, {"o", "x"}}
)

// fleet is an index that random operations write.
type fleet struct {
	*aggregate.Index

	scopes map[[2]string]*aggregate.Scope
	n      int
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{Index: x, scopes: map[[2]string]*aggregate.Scope{}}
}

func (f *fleet) change(t *testing.T, r *rand.Rand) {
	t.Helper()
	f.n++
	name, kind := members[r.IntN(len(members))], kinds[r.IntN(len(kinds))]
	_, is := f.Snapshot().Member(name)
	at := [2]string{name, string(kind)}
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	switch n := r.IntN(12); {
	case n == 0 && is:
		f.RemoveMember(name)
		maps.DeleteFunc(f.scopes, func(at [2]string, _ *aggregate.Scope) bool { return at[0] == name })
	case n < 4 || !is:
		m, _ := f.Snapshot().Member(name)
		if !is {
			m = aggregate.Member{Name: name, UID: fmt.Sprint(r.IntN(2))}
		}
		m.Role, m.Version = aggregate.Role(r.IntN(3)), fmt.Sprint(r.IntN(3))
		check(f.PutMember(m))
	case n == 4 && f.scopes[at] != nil:
		f.scopes[at].Remove()
		delete(f.scopes, at)
	default:
		s := f.scopes[at]
		if s == nil {
			var err error
			s, err = f.OpenScope(name, kind, "v1")
			check(err)
			f.scopes[at] = s
		}
		key := names[r.IntN(len(names))]
		if s.SetStatus(aggregate.Status{State: aggregate.State(r.IntN(5))}); n < 7 {
			s.Delete(key[0], key[1])
		} else {
			s.Upsert(s.Item(&aggregate.Record{Namespace: key[0], Name: key[1], UID: fmt.Sprint(r.IntN(2)), ResourceVersion: fmt.Sprint(f.n), Body: fmt.Appendf(nil, `{"v":%d}`, f.n)}))
		}
		_, err := s.Commit()
		check(err)
	}
}

// one returns an index with all that a view shows, by the rule.
func one(t *testing.T, own, peers *aggregate.Snapshot) *aggregate.Snapshot {
	t.Helper()
	f := newFleet(t)
	for _, name := range members {
		from := own
		m, is := own.Member(name)
		if told, some := peers.Member(name); some && (!is || m.Role == aggregate.Joining) {
			from, m, is = peers, told, true
		}
		if !is {
			continue
		}
		if err := f.PutMember(m); err != nil {
			t.Fatal(err)
		}
		for info := range from.Scopes(name) {
			s, err := f.OpenScope(name, info.Kind, info.Version)
			if err != nil {
				t.Fatal(err)
			}
			list, err := from.List(aggregate.Query{Kind: info.Kind, Members: []string{name}})
			if err != nil {
				t.Fatal(err)
			}
			var items []aggregate.Item
			for o := range list {
				items = append(items, s.Item(&aggregate.Record{Namespace: o.Namespace(), Name: o.Name(), UID: o.UID(), ResourceVersion: o.ResourceVersion(), Body: []byte(body(o))}))
			}
			if _, err := s.Replace(items, info.Status); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f.Snapshot()
}

func body(o aggregate.Object) string {
	text, err := o.AppendBody(nil)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func text(o aggregate.Object) string {
	if o.IsZero() {
		return "none"
	}
	return fmt.Sprint(o.Ref(), o.UID(), o.ResourceVersion(), body(o))
}

func scopeText(s aggregate.ScopeInfo) string {
	return fmt.Sprint(s.Member, s.Kind, s.Status, s.Objects)
}

// show writes all that can be read of a fleet.
func show(
	members func(func(aggregate.Member) bool), kindsOf func(func(aggregate.Kind) bool), scopesOf func(aggregate.Kind) func(func(aggregate.ScopeInfo) bool),
	scopes func(string) func(func(aggregate.ScopeInfo) bool), list func(aggregate.Query) []string, named func(aggregate.Kind, string, string) func(func(aggregate.Object) bool),
) (out []string) {
	for m := range members {
		out = append(out, fmt.Sprint(m))
		for s := range scopes(m.Name) {
			out = append(out, scopeText(s))
		}
	}
	for kind := range kindsOf {
		out = append(out, string(kind))
		for s := range scopesOf(kind) {
			out = append(out, scopeText(s))
		}
		for _, q := range []aggregate.Query{{Kind: kind}, {Kind: kind, Namespace: "n"}, {Kind: kind, Members: []string{"f/b", "f/d", "f/e"}}, {Kind: kind, Members: []string{}}, {Kind: kind, Name: "x"}} {
			out = append(out, list(q)...)
		}
		for _, key := range names {
			for o := range named(kind, key[0], key[1]) {
				out = append(out, text(o))
			}
		}
	}
	return out
}

func texts(seq func(func(aggregate.Object) bool), err error) (out []string) {
	if err != nil {
		return []string{err.Error()}
	}
	for o := range seq {
		out = append(out, text(o))
	}
	return out
}

// TestView_IsOneIndex compares views over random histories with one index of the same content: what they show, and what
// they say has changed.
func TestView_IsOneIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 60 {
		own, peers := newFleet(t), newFleet(t)
		cursors := [2]*aggregate.Cursor{own.Cursor(own.Snapshot()), peers.Cursor(peers.Snapshot())}
		view := fleetview.Of(own.Snapshot(), peers.Snapshot(), nil)
		held := map[aggregate.Ref]string{}
		for step := range 40 {
			for range 1 + r.IntN(4) {
				own.change(t, r)
				if r.IntN(2) == 0 {
					peers.change(t, r)
				}
			}
			var batches [2]*aggregate.Batch
			for i, c := range cursors {
				if r.IntN(4) > 0 || i == 1 && batches[0] == nil {
					batches[i], _ = c.Poll()
				}
			}
			if batches[0] == nil && batches[1] == nil {
				continue
			}
			change := fleetview.Between(view, batches[0], batches[1])
			if change.Before != view {
				t.Fatal("it begins elsewhere")
			}
			before := view
			view = change.After
			want := one(t, view.Own(), view.Peers())
			a := show(view.Members(), view.Kinds(), func(k aggregate.Kind) func(func(aggregate.ScopeInfo) bool) { return view.ScopesOf(k) },
				func(m string) func(func(aggregate.ScopeInfo) bool) { return view.Scopes(m) }, func(q aggregate.Query) []string { return texts(view.List(q)) },
				func(k aggregate.Kind, ns, name string) func(func(aggregate.Object) bool) {
					return view.Named(k, ns, name)
				})
			b := show(want.Members(), want.Kinds(), func(k aggregate.Kind) func(func(aggregate.ScopeInfo) bool) { return want.ScopesOf(k) },
				func(m string) func(func(aggregate.ScopeInfo) bool) { return want.Scopes(m) }, func(q aggregate.Query) []string { return texts(want.List(q)) },
				func(k aggregate.Kind, ns, name string) func(func(aggregate.Object) bool) {
					return want.Named(k, ns, name)
				})
			if !slices.Equal(a, b) {
				t.Fatalf("step %d:\n got %q\nwant %q", step, a, b)
			}
			checkChange(t, change, before, held)
		}
	}
}

// checkChange applies what has changed to what was held, which is then what the view has.
func checkChange(t *testing.T, change *fleetview.Change, before *fleetview.View, held map[aggregate.Ref]string) {
	t.Helper()
	was := map[string]aggregate.Member{}
	for m := range before.Members() {
		was[m.Name] = m
	}
	for d := range change.Members() {
		if d.After == nil {
			delete(was, d.Before.Name)
		} else {
			was[d.After.Name] = *d.After
		}
	}
	is := map[string]aggregate.Member{}
	for m := range change.After.Members() {
		is[m.Name] = m
	}
	if fmt.Sprint(was) != fmt.Sprint(is) {
		t.Fatalf("members:\n got %v\nwant %v", was, is)
	}
	scopes := map[string]string{}
	for m := range before.Members() {
		for s := range before.Scopes(m.Name) {
			scopes[s.Member+string(s.Kind)] = s.Status.State.String()
		}
	}
	for d := range change.Scopes() {
		if _, is := change.After.Scope(d.After.Member, d.After.Kind); is {
			scopes[d.After.Member+string(d.After.Kind)] = d.After.Status.State.String()
		} else {
			delete(scopes, d.After.Member+string(d.After.Kind))
		}
	}
	for m := range change.After.Members() {
		for s := range change.After.Scopes(m.Name) {
			if key := s.Member + string(s.Kind); scopes[key] != s.Status.State.String() {
				t.Fatalf("%s is %s, by its changes %s", key, s.Status.State, scopes[key])
			} else {
				delete(scopes, key)
			}
		}
	}
	if len(scopes) > 0 {
		t.Fatalf("scopes are left: %v", scopes)
	}
	for d := range change.Deltas() {
		now := held[d.Ref]
		if had := !d.Before.IsZero(); had && now != text(d.Before) || !had && now != "" {
			t.Fatalf("%s was %q, the delta says %s", d.Ref, now, text(d.Before))
		}
		if delete(held, d.Ref); !d.After.IsZero() {
			held[d.Ref] = text(d.After)
		}
	}
	n := 0
	for _, kind := range kinds {
		for o := range change.After.Objects(kind, "") {
			if n++; held[o.Ref()] != text(o) {
				t.Fatalf("%s is %s, by its changes %q", o.Ref(), text(o), held[o.Ref()])
			}
			if got, ok := change.After.Get(o.Ref()); !ok || text(got) != text(o) {
				t.Fatalf("Get of %s: %s", o.Ref(), text(got))
			}
		}
		for o := range change.After.Judged(kind, "") {
			m, reads := change.After.Own().Member(o.Member())
			if !reads || m.Role != aggregate.Judge || !change.After.Judges(o.Member()) {
				t.Fatalf("%s is not judged here", o.Ref())
			}
		}
	}
	if n != len(held) {
		t.Fatalf("%d objects, %d by changes", n, len(held))
	}
}

func TestKeyOwner_SharesKeys(t *testing.T) {
	ids := []string{"federator-0", "federator-1", "federator-2"}
	count := map[string]int{}
	moved := 0
	for i := range 3000 {
		key := fmt.Sprint("key-", i)
		var owners, later []string
		for _, id := range ids {
			if o := (fleetview.KeyOwner{Self: id, Now: ids}); o.Owns("b", key) {
				owners = append(owners, id)
			}
			if o := (fleetview.KeyOwner{Self: id, Now: ids[:2]}); o.Owns("b", key) {
				later = append(later, id)
			}
			both := fleetview.KeyOwner{Self: id, Now: ids[:2], Before: ids}
			if both.Owns("b", key) != (slices.Contains(owners, id) || slices.Contains(later, id)) {
				t.Fatalf("%s of %s while processes change", key, id)
			}
		}
		if len(owners) != 1 || len(later) != 1 {
			t.Fatalf("%s is owned by %v and %v", key, owners, later)
		}
		count[owners[0]]++
		if owners[0] != ids[2] && owners[0] != later[0] {
			moved++
		}
	}
	for _, id := range ids {
		if count[id] < 850 || count[id] > 1150 {
			t.Errorf("%s owns %d of 3000", id, count[id])
		}
	}
	if moved > 0 {
		t.Errorf("%d keys moved between processes that stayed", moved)
	}
	if o := (fleetview.KeyOwner{}); !o.Owns("b", "k") {
		t.Error("one that is alone does not own a key")
	}
	// All processes of all versions have to agree.
	if o := (fleetview.KeyOwner{Self: "federator-2", Now: ids}); !o.Owns("binding", "shop") {
		t.Error("the owner of a key has changed")
	}
}
