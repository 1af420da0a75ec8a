package policy_test

import (
	"fmt"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// manyScopes is a fleet with 100 kinds in each member, all but Pods empty.
func manyScopes(b *testing.B, set *policy.Set, members int) *aggregate.Index {
	b.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		b.Fatal(err)
	}
	refs, _ := set.Kinds()
	var kinds []aggregate.Kind
	for _, ref := range refs {
		kinds = append(kinds, ref.Kind)
	}
	if !slices.Contains(kinds, "Pod") {
		kinds = append(kinds, "Pod")
	}
	for i := 0; len(kinds) < 100; i++ {
		kinds = append(kinds, aggregate.Kind(fmt.Sprintf("Kind%d.example", i)))
	}
	for m := range members {
		name := fmt.Sprintf("fleet/m%05d", m)
		if err := x.PutMember(aggregate.Member{Name: name, UID: name, Version: "v1.36.0", Labels: []aggregate.Label{{Key: "env", Value: "prod"}}}); err != nil {
			b.Fatal(err)
		}
		for _, kind := range kinds {
			s, err := x.OpenScope(name, kind, "v1")
			if err != nil {
				b.Fatal(err)
			}
			var items []aggregate.Item
			if kind == "Pod" {
				items = append(items, podItem(s, 0))
			}
			if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
				b.Fatal(err)
			}
			s.Close()
		}
	}
	return x
}

func podItem(s *aggregate.Scope, version int) aggregate.Item {
	return s.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: "web", ResourceVersion: fmt.Sprint(version), Body: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"n":"%d"},"name":"web","namespace":"shop"},"spec":{"containers":[{"image":"web:1","name":"web"}]}}`, version)})
}

// BenchmarkEngine_ManyScopes is what the shipped policies cost in a fleet of many members and
// kinds, of which nearly all are empty: the first evaluation, a configuration that changes
// nothing, a change of one scope's state, and one of an object.
func BenchmarkEngine_ManyScopes(b *testing.B) {
	s, err := readShipped()
	if err != nil {
		b.Fatal(err)
	}
	bindings, _ := policy.DefaultBindings(s.set, nil)
	for _, members := range []int{100, 1000} {
		x := manyScopes(b, s.set, members)
		e, err := policy.NewEngine(policy.EngineOptions{Set: s.set, Bindings: bindings})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Reset(b.Context(), x.Snapshot(), nil); err != nil { // where the first of these is not selected
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("members=%d/start", members), func(b *testing.B) {
			for b.Loop() {
				if _, err := e.Reset(b.Context(), x.Snapshot(), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("members=%d/configure", members), func(b *testing.B) {
			for b.Loop() {
				if _, err := e.Configure(b.Context(), s.set, bindings); err != nil {
					b.Fatal(err)
				}
			}
		})
		cursor := x.Cursor(e.State().Snapshot)
		pods, err := x.OpenScope("fleet/m00050", "Pod", "v1")
		if err != nil {
			b.Fatal(err)
		}
		other := map[aggregate.State]aggregate.State{aggregate.Synced: aggregate.Stale, aggregate.Stale: aggregate.Synced}
		n := 0
		for what, change := range map[string]func(){
			"state":  func() { pods.SetStatus(aggregate.Status{State: other[pods.Status().State]}) },
			"object": func() { pods.Upsert(podItem(pods, n)) },
		} {
			b.Run(fmt.Sprintf("members=%d/%s", members, what), func(b *testing.B) {
				for b.Loop() {
					n++
					change()
					if _, err := pods.Commit(); err != nil {
						b.Fatal(err)
					}
					batch, _ := cursor.Poll()
					if _, err := e.Apply(b.Context(), batch, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
