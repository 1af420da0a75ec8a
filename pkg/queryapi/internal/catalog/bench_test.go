package catalog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
)

// BenchmarkPodRows prints the page that kubectl asks for: 500 real pods.
func BenchmarkPodRows(b *testing.B) {
	pods := realObjects(b, "core_Pod")
	view := viewOf(b, served("Pod", "", "v1", "pods", true), "v1")
	r, err := view.Resource("", "v1", "pods")
	ok(b, err)
	bytes := 0
	for i := range 500 {
		bytes += len(pods[i%len(pods)])
	}
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	for b.Loop() {
		for i := range 500 {
			if _, err := r.Row(pods[i%len(pods)]); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(time.Millisecond), "ms/500rows")
}

// BenchmarkViewAfterChange asks for the view of a fleet with 60 kinds and 30 definitions in
// each member, in which the state of a scope, or an object, changes all the time.
func BenchmarkViewAfterChange(b *testing.B) {
	for _, members := range []int{100, 1000} {
		f, list := fleetWithDefinitions(b, members)
		c := catalog.New(newFakeFleet(list...))
		first := c.View(f.index.Snapshot())
		states := []aggregate.State{aggregate.Stale, aggregate.Synced}
		for what, change := range map[string]func(n int){
			"state":  func(n int) { f.state("fleet/m7", "Kind7.shop.example", states[n%2]) },
			"object": func(n int) { f.keep("fleet/m7", "Kind7.shop.example", "shop.example/v1", changedWidget(n)) },
		} {
			b.Run(fmt.Sprintf("members=%d/%s", members, what), func(b *testing.B) {
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					b.StopTimer()
					n++
					change(n)
					snapshot := f.index.Snapshot()
					b.StartTimer()
					if c.View(snapshot) != first {
						b.Fatal("another view")
					}
				}
			})
		}
		b.Run(fmt.Sprintf("members=%d/built", members), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				catalog.New(newFakeFleet(list...)).View(f.index.Snapshot())
			}
		})
	}
}

func changedWidget(n int) string {
	return fmt.Sprintf(`{"apiVersion":"shop.example/v1","kind":"Kind7","metadata":{"name":"w","resourceVersion":"%d"},"spec":{"n":%d}}`, n, n)
}

func fleetWithDefinitions(b *testing.B, members int) (*fleet, []catalog.ServedResource) {
	b.Helper()
	f := newFleet(b)
	var list []catalog.ServedResource
	for m := range members {
		member := fmt.Sprintf("fleet/m%d", m)
		f.join(member, "v1.36.0")
		for k := range 60 {
			s := served(fmt.Sprintf("Kind%d", k), "shop.example", "v1", fmt.Sprintf("kind%ds", k), true)
			f.keep(member, s.Kind, "shop.example/v1")
			if m == 0 {
				list = append(list, s)
			}
		}
		for d := range 30 {
			f.keep(member, definitions, "apiextensions.k8s.io/v1", strings.ReplaceAll(strings.ReplaceAll(
				widgetDefinition("Size", ".spec.size"), "Widget", fmt.Sprintf("Kind%d", d)), "widgets", fmt.Sprintf("kind%ds", d)))
		}
	}
	return f, list
}
