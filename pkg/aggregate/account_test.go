package aggregate_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// attack is what a hostile member may do to one index.
type attack struct {
	index  *aggregate.Index
	scopes []*aggregate.Scope
	rng    *rand.Rand
	rv     int
	behind []*aggregate.Snapshot // that readers hold, and all of whose objects have changed since
	ahead  int64                 // what items cost that are not in yet
	keep   []any
}

// live returns the heap that is in use when all garbage has gone, that behind weak
// pointers and finalisers included.
func live() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// noise returns text that does not compress.
func (a *attack) noise(n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%016x", a.rng.Uint64())
	}
	return b.String()[:n]
}

func (a *attack) record(i int) *aggregate.Record {
	a.rv++
	r := record(i, a.rv, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%05d","namespace":"n"}}`, i))
	r.Update = true
	return r
}

func (a *attack) upsert(s *aggregate.Scope, r *aggregate.Record) { s.Upsert(s.Item(r)) }

func (a *attack) commit(t *testing.T) {
	for _, s := range a.scopes {
		mustCommit(t, s)
	}
}

// labels makes n labels with values of their own.
func (a *attack) labels(n, size int) []aggregate.Label {
	out := make([]aggregate.Label, n)
	for j := range out {
		out[j] = aggregate.Label{Key: fmt.Sprintf("team.example.org/label-number-%05d", j), Value: a.noise(size)}
	}
	return out
}

func (a *attack) owners(n int) []aggregate.Owner {
	out := make([]aggregate.Owner, n)
	for j := range out {
		out[j] = aggregate.Owner{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: a.noise(20), UID: fmt.Sprintf("00000000-0000-4000-8000-%012x", a.rng.Uint64()>>16),
		}
	}
	return out
}

// list has a scope hold n objects and no others.
func (a *attack) list(t *testing.T, s *aggregate.Scope, n int) {
	t.Helper()
	items := make([]aggregate.Item, n)
	for i := range items {
		r := a.record(i)
		r.Body = body(a.noise(8 << 10))
		items[i] = s.Item(r)
	}
	if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
}

// body is JSON that holds text.
func body(text string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","spec":{"nodeName":%q}}`, text)
}

// TestIndex_AccountIsWhatIsHeld shows that whatever a member does, the live heap is near what
// the index accounts for: budgets would not hold a member otherwise.
func TestIndex_AccountIsWhatIsHeld(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory, with one goroutine")
	}
	const least, most = 0.5, 1.5
	for _, tt := range []struct {
		name   string
		scopes int
		log    int64 // bytes; 0: next to nothing
		do     func(t *testing.T, a *attack, s *aggregate.Scope)
	}{
		{name: "many labels", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 10 {
				r := a.record(i)
				r.Labels = a.labels(10_000, 8)
				a.upsert(s, r)
			}
		}},
		{name: "labels that all share", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			shared := a.labels(200, 8)
			for i := range 5_000 {
				r := a.record(i)
				r.Labels = shared
				a.upsert(s, r)
			}
		}},
		{name: "labels of each object's own", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 5_000 {
				r := a.record(i)
				r.Labels = a.labels(8, 10)
				a.upsert(s, r)
			}
		}},
		{name: "labels that change without end", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			fill(t, s, 5_000, func(i int) []byte { return body("") })
			for range 5_000 {
				r := a.record(0)
				r.Labels = a.labels(5, 100)
				a.upsert(s, r)
				mustCommit(t, s)
			}
		}},
		{name: "labels that change at one version", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			fill(t, s, 5_000, func(i int) []byte { return body("") })
			for range 10_000 {
				r := a.record(0)
				r.ResourceVersion = "1"
				r.Labels, r.Owners = a.labels(1, 1000), a.owners(2)
				a.upsert(s, r)
				mustCommit(t, s)
			}
		}},
		{name: "labels that came and went", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 30_000 {
				r := a.record(i)
				r.Labels, r.Owners = a.labels(3, 10), a.owners(1)
				a.upsert(s, r)
			}
			mustCommit(t, s)
			for i := range 28_000 {
				s.Delete("n", record(i, 1, nil).Name)
			}
		}},
		{name: "long names", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 5_000 {
				r := a.record(i)
				r.Name = a.noise(253)
				a.upsert(s, r)
			}
			for i := range 3 {
				r := a.record(i)
				r.Name, r.Namespace = a.noise(1<<20), a.noise(1<<20)
				a.upsert(s, r)
			}
		}},
		{name: "many owners", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 200 {
				r := a.record(i)
				r.Owners = a.owners(100)
				a.upsert(s, r)
			}
			shared := a.owners(20)
			for i := range 3_000 {
				r := a.record(1000 + i)
				r.Owners = shared
				a.upsert(s, r)
			}
		}},
		{name: "versions and UIDs of no API server", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 5_000 {
				r := a.record(i)
				r.UID, r.ResourceVersion, r.Owners = a.noise(200), a.noise(300), a.owners(1)
				a.upsert(s, r)
			}
		}},
		{name: "values of indexed fields", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 5_000 {
				r := a.record(i)
				r.Body = body(a.noise(500))
				a.upsert(s, r)
			}
		}},
		{name: "tiny objects", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 30_000 {
				r := a.record(i)
				r.Body = []byte("{}")
				a.upsert(s, r)
			}
		}},
		{name: "huge bodies", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 5 {
				r := a.record(i)
				r.Body = body(a.noise(2 << 20))
				a.upsert(s, r)
			}
		}},
		{name: "deleted and made again", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for n := range 5 {
				for i := range 5_000 {
					r := a.record(i)
					r.UID = fmt.Sprintf("00000000-0000-4000-8000-%012x", n*5_000+i)
					r.Labels = a.labels(2, 20)
					a.upsert(s, r)
				}
				mustCommit(t, s)
				for i := range 5_000 {
					if n < 4 || i%2 == 0 {
						s.Delete("n", record(i, 1, nil).Name)
					}
				}
				mustCommit(t, s)
			}
		}},
		{name: "many namespaces", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 20_000 {
				r := a.record(i)
				r.Namespace = a.noise(63)
				a.upsert(s, r)
			}
		}},
		{name: "many kinds", scopes: 2_000, do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 1 {
				a.upsert(s, a.record(i))
			}
		}},
		{name: "the change log is full", log: 4 << 20, do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			fill(t, s, 1_000, func(i int) []byte { return body("") })
			for i := range 15_000 {
				r := a.record(i % 1_000)
				if i%3 == 0 {
					r.Labels = a.labels(1+i%7, 30)
				}
				a.upsert(s, r)
				mustCommit(t, s)
			}
		}},
		{name: "the change log has lists in it", log: 8 << 20, do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for range 10 {
				items := make([]aggregate.Item, 2_000)
				for i := range items {
					r := a.record(i)
					r.Labels = a.labels(1+i%7, 30)
					items[i] = s.Item(r)
				}
				if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{name: "statuses that change without end", log: 1 << 20, do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 10_000 {
				s.SetStatus(aggregate.Status{State: []aggregate.State{aggregate.Synced, aggregate.Stale}[i%2]})
				mustCommit(t, s)
			}
		}},
		{name: "kinds that come and go", log: 1 << 20, do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 5_000 {
				openScope(t, a.index, "m", aggregate.MakeKind("K", fmt.Sprint("g", i))).Remove()
			}
			trainAll(t, a.index) // which forgets them
		}},
		{name: "a member that comes and goes", log: 1 << 20, do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for range 20 {
				for i := range 200 {
					openScope(t, a.index, "n", aggregate.MakeKind("K", fmt.Sprint("g", i)))
				}
				a.index.RemoveMember("n")
			}
			trainAll(t, a.index)
		}},
		{name: "lists that come and go", log: 256 << 10, do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for range 10 {
				for _, n := range []int{50, 0} {
					a.list(t, s, n)
				}
			}
		}},
		{name: "lists after statuses", log: 256 << 10, do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for range 10 {
				a.list(t, s, 50)
				s.SetStatus(aggregate.Status{State: aggregate.Stale})
				mustCommit(t, s)
			}
		}},
		{name: "single objects that lists take", log: 256 << 10, do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for range 10 {
				for i := range 50 {
					r := a.record(i)
					r.Body = body(a.noise(8 << 10))
					a.upsert(s, r)
				}
				mustCommit(t, s)
				a.list(t, s, 0)
			}
		}},
		{name: "a reader is behind", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for n := range 2 {
				for i := range 10_000 {
					r := a.record(i)
					r.Labels = a.labels(3, 10)
					a.upsert(s, r)
				}
				mustCommit(t, s)
				if n == 0 {
					a.keep = append(a.keep, a.index.Cursor(a.index.Snapshot()))
					a.behind = append(a.behind, a.index.Snapshot())
				}
			}
		}},
		{name: "a list is under way", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			shared := a.labels(10, 10)
			items := make([]aggregate.Item, 10_000)
			for i := range items {
				r := a.record(i)
				if r.Labels = shared; i%3 == 0 {
					r.Labels = a.labels(3, 10)
				}
				r.Owners = a.owners(1)
				items[i] = s.Item(r)
				a.ahead += items[i].Size()
			}
			a.keep = append(a.keep, items)
		}},
		{name: "a list was given up", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			for i := range 10_000 {
				r := a.record(i)
				r.Labels, r.Owners = a.labels(3, 10), a.owners(1)
				s.Item(r)
			}
			fill(t, s, 5_000, func(int) []byte { return body("") })
		}},
		{name: "trained", do: func(t *testing.T, a *attack, s *aggregate.Scope) {
			fill(t, s, 20_000, func(i int) []byte { return shape(1, i) })
			if n := len(trainAll(t, a.index)); n != 1 {
				t.Fatal(n, "trainings")
			}
			for i := range 5_000 { // fast ones
				r := a.record(i)
				r.Body = shape(1, i)
				a.upsert(s, r)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := live()
			a := &attack{rng: rand.New(rand.NewPCG(1, 1))}
			log := tt.log
			if log == 0 {
				log = 1
			}
			a.index = newIndex(t, aggregate.Options{LogBytes: log, Fields: map[aggregate.Kind][]string{"Pod": {"spec.nodeName"}}})
			a.scopes = append(a.scopes, openScope(t, a.index, "m", "Pod"))
			for i := range tt.scopes {
				a.scopes = append(a.scopes, openScope(t, a.index, "m", aggregate.MakeKind("K", fmt.Sprint("g", i))))
			}
			for _, s := range a.scopes {
				tt.do(t, a, s)
			}
			a.commit(t)
			accounted := a.index.Account()
			total := accounted.Total() + a.ahead
			for _, snap := range a.behind {
				info, _ := snap.Scope("m", "Pod")
				total += info.Bytes
			}
			held := live() - before
			ratio := float64(held) / float64(total)
			t.Logf("%d KiB are held, %d accounted (%d of scopes, %d of the log, %d of codecs): %.2f times", held>>10, total>>10,
				accounted.Scopes>>10, accounted.Log>>10, accounted.Codecs>>10, ratio)
			if ratio < least || ratio > most {
				t.Errorf("%.2f times what is accounted is held, want between %v and %v", ratio, least, most)
			}
			runtime.KeepAlive(a)
		})
	}
}

// TestScope_EmptyIsSmall bounds the live heap of scopes without objects, which most scopes of
// a fleet are.
func TestScope_EmptyIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory, with one goroutine")
	}
	const members, most = 200, 1 << 10
	for _, tt := range []struct {
		name string
		do   func(s *aggregate.Scope)
	}{
		{"never listed", func(*aggregate.Scope) {}},
		{"listed", func(s *aggregate.Scope) {
			if _, err := s.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
				t.Fatal(err)
			}
		}},
		{"emptied", func(s *aggregate.Scope) {
			r := record(1, 1, body(""))
			r.Labels = []aggregate.Label{{Key: "app", Value: "web"}}
			s.Upsert(s.Item(r))
			mustCommit(t, s)
			s.Delete(r.Namespace, r.Name)
			mustCommit(t, s)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := live()
			x := newIndex(t, aggregate.Options{LogBytes: 1})
			scopes := openScopes(t, x, members)
			for _, s := range scopes {
				tt.do(s)
			}
			each := (live() - before - x.Account().Codecs) / int64(len(scopes)) // codecs keep samples
			t.Logf("%d bytes a scope", each)
			if each > most {
				t.Errorf("an empty scope holds %d bytes, want at most %d", each, most)
			}
			runtime.KeepAlive(x)
			runtime.KeepAlive(scopes)
		})
	}
}
