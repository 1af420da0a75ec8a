package persistence

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

func content(x *aggregate.Snapshot) string {
	var out []string
	for m := range x.Members() {
		out = append(out, "member "+m.Name+" "+m.UID)
		for _, k := range x.KindsOf(m.Name) {
			out = append(out, fmt.Sprintf("scope %s %s", m.Name, k))
			for o := range x.Objects(m.Name, k) {
				b, _ := o.AppendBody(nil)
				out = append(out, fmt.Sprintf("object %s %s %s %s", m.Name, k, o.Name(), b))
			}
		}
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

func scopeContent(x *aggregate.Snapshot, m string) (out string) {
	for o := range x.Objects(m, "Pod") {
		b, _ := o.AppendBody(nil)
		out += o.Name() + string(b) + " "
	}
	return out
}

// TestStore_EqualsModelWhereverItIsKilled: kills at any point between the writes of a batch, with members that leave, rejoin, are rewritten and
// compacted at once; then ends cut at a random byte.
func TestStore_EqualsModelWhereverItIsKilled(t *testing.T) {
	most := uint64(20)
	if testing.Short() {
		most = 4
	}
	for seed := uint64(1); seed <= most && !t.Failed(); seed++ {
		runModel(t, seed)
	}
}

func runModel(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir() + "/d"
	var key []byte
	if seed%2 == 0 {
		key = make([]byte, 32)
	}
	set := func(o *Options) { o.Key = key }
	s, x, _ := newStore(t, dir, 1, set)
	w := newWriter(t, s, x)
	history := map[aggregate.Revision]string{}
	seenTip, seenContent := x.Snapshot().Revision(), content(x.Snapshot())
	history[seenTip] = seenContent
	next := uint64(2)
	truth := map[string]string{} // what a member had, by how far it was read
	check := func(what string, cut bool) {
		to := t.TempDir() + "/copy"
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil { // a segment is renamed meanwhile
			return
		}
		if cut {
			p := filepath.Join(to, endsName)
			fi, err := os.Stat(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(p, rng.Int64N(fi.Size()+1)); err != nil {
				t.Fatal(err)
			}
		}
		s2, y, out := newStore(t, to, 1000, set)
		defer s2.Close()
		got := content(y.Snapshot())
		for m := range y.Snapshot().Members() {
			if rv := rvOf(y, m.Name); rv != "" && truth[m.Name+rv] != scopeContent(y.Snapshot(), m.Name) {
				t.Errorf("seed %d: %s: %s is resumed at %s with %s, where it had %s", seed, what, m.Name, rv, scopeContent(y.Snapshot(), m.Name), truth[m.Name+rv])
			}
		}
		if !cut && (len(out.Dropped) > 0 || out.Revision == 0) {
			t.Errorf("seed %d: %s: not all is loaded: %+v", seed, what, out)
		}
		if !cut && got != seenContent {
			t.Errorf("seed %d: %s: loaded\n%s\nwant\n%s", seed, what, got, seenContent)
		}
		if cut && out.Revision != 0 {
			if want, ok := history[out.Revision]; !ok || want != got {
				t.Errorf("seed %d: %s, ends cut: readers go on from %d with\n%s\nthey had (known %t)\n%s", seed, what, out.Revision, got, ok, want)
			}
		}
	}
	names := []string{"prod/a", "prod/b"}
	scopes := map[string]*aggregate.Scope{}
	uid := 0
	rv := 10
	open := func(m string) {
		uid++
		if err := x.PutMember(aggregate.Member{Name: m, UID: fmt.Sprint("uid", uid)}); err != nil {
			t.Fatal(err)
		}
		sc, err := x.OpenScopeAs(m, "Pod", "v1", "pods")
		if err != nil {
			t.Fatal(err)
		}
		scopes[m] = sc
	}
	for step := range 25 {
		for range 1 + rng.IntN(5) {
			m := names[rng.IntN(2)]
			sc := scopes[m]
			switch r := rng.IntN(10); {
			case sc == nil:
				open(m)
			case r == 0:
				x.RemoveMember(m)
				delete(scopes, m)
			case r == 1:
				x.RemoveMember(m)
				open(m)
			case r == 2:
				var items []aggregate.Item
				for i := range rng.IntN(6) {
					items = append(items, object(sc, fmt.Sprint("o", i), fmt.Sprintf(`{"a":%d}`, rng.IntN(5))))
				}
				rv++
				reachedAt(sc, fmt.Sprint(rv))
				if _, err := sc.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
					t.Fatal(err)
				}
			case r == 3:
				sc.Remove()
				sc, err := x.OpenScopeAs(m, "Pod", "v1", "pods")
				if err != nil {
					t.Fatal(err)
				}
				scopes[m] = sc
			default:
				n := fmt.Sprint("o", rng.IntN(6))
				if rng.IntN(3) == 0 {
					sc.Delete("n", n)
				} else {
					rv++
					sc.Upsert(sc.Item(&aggregate.Record{Namespace: "n", Name: n, UID: "u" + n, ResourceVersion: fmt.Sprint(rv), Body: []byte(fmt.Sprintf(`{"a":%d}`, rng.IntN(50)))}))
				}
				rv++
				reachedAt(sc, fmt.Sprint(rv))
				commit(t, sc)
			}
			if at := m + fmt.Sprint(rv); truth[at] == "" {
				truth[at] = scopeContent(x.Newest(), m)
			}
		}
		p, _ := x.Pending(w.last)
		if p.Snapshot() == w.last {
			continue
		}
		if rng.IntN(8) == 0 {
			if err := w.compare(p.Snapshot()); err != nil {
				t.Fatal(err)
			}
		} else if err := w.collect(p); err != nil {
			t.Fatal(err)
		}
		for _, m := range w.dirty {
			if w.logs[m.name] == m && rng.IntN(4) == 0 {
				m.abandon()
			}
		}
		check(fmt.Sprint("step ", step, " collected"), false)
		if err := w.flush(t.Context(), p.Snapshot()); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprint("step ", step, " flushed"), false)
		if rng.IntN(5) == 0 {
			w.ends.limit = 0 // anew
		}
		if err := w.ends.write(p.Snapshot().Revision()); err != nil {
			t.Fatal(err)
		}
		seenTip, seenContent = p.Snapshot().Revision(), content(p.Snapshot())
		history[seenTip] = seenContent
		check(fmt.Sprint("step ", step, " ends"), false)
		w.removeLeft()
		w.last = p.Snapshot()
		p.Release()
		check(fmt.Sprint("step ", step, " removed"), false)
		check(fmt.Sprint("step ", step, " removed"), true)
		if rng.IntN(3) == 0 && w.segments.member == "" {
			for _, m := range w.logs {
				if err := w.beginSegment(m); err != nil {
					t.Fatal(err)
				}
				break
			}
		} else if w.segments.member != "" && rng.IntN(2) == 0 {
			if err := w.compacted(<-w.segments.done); err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprint("step ", step, " compacted"), false)
			check(fmt.Sprint("step ", step, " compacted"), true)
		}
		if rng.IntN(10) == 0 { // a restart
			w.close()
			s.Close()
			for _, sc := range scopes {
				sc.Close()
			}
			var out Loaded
			s, x, out = newStore(t, dir, next, set)
			next++
			if out.Revision == 0 {
				t.Fatalf("seed %d: %+v", seed, out)
			}
			clear(history)
			for m := range scopes {
				sc, err := x.OpenScopeAs(m, "Pod", "v1", "pods")
				if err != nil {
					t.Fatal(err)
				}
				scopes[m] = sc
			}
			w = newWriter(t, s, x)
			seenTip, seenContent = x.Snapshot().Revision(), content(x.Snapshot())
			history[seenTip] = seenContent
			history[out.Revision] = seenContent
			check("restarted", false)
		}
	}
	w.close()
	s.Close()
}

// An empty log, as a loss of power leaves one that was made just before it, hides all that is written after it
// from every process to come.
func TestBegin_EmptyLogIsNotForEver(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, x, _ := newStore(t, dir, 1, nil)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	scope.Upsert(object(scope, "o1", `{"a":1}`))
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	w.segment(t, "prod/a")
	w.close()
	s.Close()
	if err := os.Truncate(filepath.Join(memberDir(dir, "prod/a"), fileName(2, logType)), 0); err != nil {
		t.Fatal(err)
	}
	for n := uint64(2); n < 5; n++ { // the machine is started; then nothing happens to the disk any more
		s, x, out := newStore(t, dir, n, func(o *Options) { o.Boot = "another" })
		had, _ := x.Snapshot().Size()
		if n > 2 && (had != int(n)-1 || out.Revision == 0) {
			t.Errorf("process %d: %d objects of %d, dropped %v, why %q", n, had, n-1, out.Dropped, out.Why)
		}
		w := newWriter(t, s, x)
		scope, err := x.OpenScopeAs("prod/a", "Pod", "v1", "pods")
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			scope.Upsert(object(scope, fmt.Sprint("o", i+1), `{"a":1}`))
		}
		commit(t, scope)
		if err := w.write(t); err != nil {
			t.Fatal(err)
		}
		w.close()
		s.Close()
	}
}
