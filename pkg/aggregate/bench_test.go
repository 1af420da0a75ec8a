package aggregate_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
)

// lockedMap is what one would write instead of the index: objects in a map
// behind a lock, with an index by one label.
type lockedMap struct {
	mu      sync.RWMutex
	objects map[aggregate.Ref]*aggregate.Record
	byApp   map[string]map[aggregate.Ref]*aggregate.Record
}

func newLockedMap() *lockedMap {
	return &lockedMap{objects: map[aggregate.Ref]*aggregate.Record{}, byApp: map[string]map[aggregate.Ref]*aggregate.Record{}}
}

func (m *lockedMap) put(ref aggregate.Ref, r *aggregate.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.objects[ref]; ok {
		delete(m.byApp[old.Labels[0].Value], ref)
	}
	m.objects[ref] = r
	app := r.Labels[0].Value
	if m.byApp[app] == nil {
		m.byApp[app] = map[aggregate.Ref]*aggregate.Record{}
	}
	m.byApp[app][ref] = r
}

func (m *lockedMap) get(ref aggregate.Ref) *aggregate.Record {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.objects[ref]
}

// list returns the objects of one app in order, as a paged API must.
func (m *lockedMap) list(app string) []aggregate.Ref {
	m.mu.RLock()
	out := make([]aggregate.Ref, 0, len(m.byApp[app]))
	for ref := range m.byApp[app] {
		out = append(out, ref)
	}
	m.mu.RUnlock()
	slices.SortFunc(out, func(a, b aggregate.Ref) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

func benchRecord(i, rv int) *aggregate.Record {
	r := record(i, rv, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","n":%d,"rv":%d,"pad":%q}`, i, rv, strings.Repeat("x", 500)))
	r.Namespace = fmt.Sprint("ns-", i%50)
	r.Labels = []aggregate.Label{{Key: "app", Value: fmt.Sprint("app-", i%100)}}
	return r
}

func refOf(r *aggregate.Record) aggregate.Ref {
	return aggregate.Ref{Member: "m", Kind: "Pod", Namespace: r.Namespace, Name: r.Name}
}

func benchIndex(b *testing.B, n int) (*aggregate.Index, *aggregate.Scope, *lockedMap) {
	b.Helper()
	x := newIndex(b, aggregate.Options{})
	s := openScope(b, x, "m", "Pod")
	m := newLockedMap()
	items := make([]aggregate.Item, n)
	for i := range n {
		r := benchRecord(i, i+1)
		items[i] = s.Item(r)
		m.put(refOf(r), r)
	}
	if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
		b.Fatal(err)
	}
	return x, s, m
}

// compare reports how long the alternative takes for each operation, and how
// many times faster than it the index is.
func compare(b *testing.B, op func(i int), alternative func(i int)) {
	b.Helper()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		op(i)
		i++
	}
	ours := b.Elapsed()
	start := time.Now()
	for j := range i {
		alternative(j)
	}
	theirs := time.Since(start)
	b.ReportMetric(float64(theirs.Nanoseconds())/float64(i), "map-ns/op")
	b.ReportMetric(float64(theirs)/float64(ours), "times-faster")
}

func BenchmarkGet(b *testing.B) {
	x, _, m := benchIndex(b, 20_000)
	refs := make([]aggregate.Ref, 4096)
	for i := range refs {
		refs[i] = refOf(benchRecord(i*37%20_000, 1))
	}
	compare(b, func(i int) {
		if _, ok := x.Snapshot().Get(refs[i%len(refs)]); !ok {
			b.Fatal("not found")
		}
	}, func(i int) {
		if m.get(refs[i%len(refs)]) == nil {
			b.Fatal("not found")
		}
	})
}

func BenchmarkCommit(b *testing.B) {
	_, s, m := benchIndex(b, 20_000)
	records := make([]*aggregate.Record, 4096)
	for i := range records {
		records[i] = benchRecord(i*37%20_000, 1)
	}
	items := func(i int) aggregate.Item {
		r := records[i%len(records)]
		r.ResourceVersion = fmt.Sprint(100_000 + i)
		return s.Item(r)
	}
	b.Run("encoded", func(b *testing.B) { // as an informer does it
		compare(b, func(i int) {
			s.Upsert(items(i))
			mustCommit(b, s)
		}, func(i int) {
			r := *records[i%len(records)]
			r.Body = slices.Clone(r.Body)
			m.put(refOf(&r), &r)
		})
	})
	b.Run("alone", func(b *testing.B) {
		ready := make([]aggregate.Item, 8192) // one version and the next, in turns
		for i := range ready {
			ready[i] = items(200_000 + i)
		}
		compare(b, func(i int) {
			s.Upsert(ready[i%len(ready)])
			mustCommit(b, s)
		}, func(i int) {
			r := records[i%len(records)]
			m.put(refOf(r), r)
		})
	})
}

func BenchmarkList(b *testing.B) {
	x, _, m := benchIndex(b, 100_000)
	sel := make([]labels.Selector, 100)
	for i := range sel {
		sel[i] = labels.SelectorFromSet(labels.Set{"app": fmt.Sprint("app-", i)})
	}
	compare(b, func(i int) {
		list, err := x.Snapshot().List(aggregate.Query{Kind: "Pod", Labels: sel[i%len(sel)]})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for range list {
			n++
		}
		if n != 1000 {
			b.Fatal(n)
		}
	}, func(i int) {
		if n := len(m.list(fmt.Sprint("app-", i%len(sel)))); n != 1000 {
			b.Fatal(n)
		}
	})
}

// BenchmarkReplace relists 20,000 objects of which none changed.
func BenchmarkReplace(b *testing.B) {
	const n = 20_000
	x, s, m := benchIndex(b, n)
	records := make([]*aggregate.Record, n)
	for i := range records {
		records[i] = benchRecord(i, i+1)
	}
	rev := x.Snapshot().Revision()
	items := make([]aggregate.Item, n)
	compare(b, func(int) {
		for i, r := range records {
			item, ok := s.Held(r)
			if !ok {
				b.Fatal("not held")
			}
			items[i] = item
		}
		if got, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil || got != rev {
			b.Fatal(got, err)
		}
	}, func(int) {
		for _, r := range records {
			m.put(refOf(r), r)
		}
	})
}
