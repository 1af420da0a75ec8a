package aggregate_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

const benchKinds = 100

// openScopes opens scopes of benchKinds kinds in each of some members. As with an informer,
// no two scopes have their strings from one place.
func openScopes(t testing.TB, x *aggregate.Index, members int) []*aggregate.Scope {
	t.Helper()
	scopes := make([]*aggregate.Scope, 0, members*benchKinds)
	for m := range members {
		name := fmt.Sprintf("fleet/member-%05d", m)
		if err := x.PutMember(aggregate.Member{Name: name, UID: strconv.Itoa(m)}); err != nil {
			t.Fatal(err)
		}
		for k := range benchKinds {
			group := fmt.Sprintf("group%d.example.org", k/10)
			kind := aggregate.MakeKind(fmt.Sprintf("CustomKind%02d", k), group)
			s, err := x.OpenScopeAs(name, kind, group+"/v1", fmt.Sprintf("customkind%02ds", k))
			if err != nil {
				t.Fatal(err)
			}
			scopes = append(scopes, s)
		}
	}
	return scopes
}

// BenchmarkOpenScope opens scopes of 100 members, most of which stay empty in a fleet, and
// reports what one keeps in the heap, with its share of all that follows the number of
// scopes.
func BenchmarkOpenScope(b *testing.B) {
	for _, objects := range []int{0, 1, 2} {
		b.Run(fmt.Sprintf("objects=%d", objects), func(b *testing.B) {
			var held, own int64
			n := 0
			for b.Loop() {
				b.StopTimer()
				before := live()
				x := newIndex(b, aggregate.Options{LogBytes: 1})
				b.StartTimer()
				scopes := openScopes(b, x, 100)
				b.StopTimer()
				items := make([]aggregate.Item, objects)
				for _, s := range scopes {
					for i := range items {
						items[i] = s.Item(benchRecord(i, i+1))
					}
					if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
						b.Fatal(err)
					}
				}
				clear(items)
				held += live() - before - int64(8*cap(scopes))
				_, bytes := x.Snapshot().Size()
				own += bytes + x.Account().Codecs // which have samples
				n += len(scopes)
				runtime.KeepAlive(scopes)
				runtime.KeepAlive(x)
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/scope")
			b.ReportMetric(float64(held)/float64(n), "B/scope")
			b.ReportMetric(float64(held-own)/float64(n), "B/scope-without-objects")
		})
	}
}

// BenchmarkStatusCommit commits nothing but a status, with 100,000 scopes in the index.
func BenchmarkStatusCommit(b *testing.B) {
	x := newIndex(b, aggregate.Options{})
	scopes := openScopes(b, x, 1000)
	b.ReportAllocs()
	b.ResetTimer()
	i := 0
	for b.Loop() {
		s := scopes[i*7919%len(scopes)]
		s.SetStatus(aggregate.Status{State: []aggregate.State{aggregate.Syncing, aggregate.Synced}[i/len(scopes)%2]})
		mustCommit(b, s)
		i++
	}
}

// BenchmarkTrain_Idle asks for trainings, as a hub does every second, when there are none,
// with 100,000 scopes in the index.
func BenchmarkTrain_Idle(b *testing.B) {
	x := newIndex(b, aggregate.Options{})
	openScopes(b, x, 1000)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		if _, more, err := x.Train(nil); more || err != nil {
			b.Fatal(more, err)
		}
	}
}

// BenchmarkRemoveMember removes members of 100 scopes, of 1,000.
func BenchmarkRemoveMember(b *testing.B) {
	b.ReportAllocs()
	x := newIndex(b, aggregate.Options{})
	openScopes(b, x, 1000)
	i := 0
	for b.Loop() {
		if i == 500 {
			b.StopTimer()
			x = newIndex(b, aggregate.Options{})
			openScopes(b, x, 1000)
			i = 0
			b.StartTimer()
		}
		if !x.RemoveMember(fmt.Sprintf("fleet/member-%05d", i)) {
			b.Fatal("not removed")
		}
		i++
	}
}
