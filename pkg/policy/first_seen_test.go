package policy_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

const sizes = `# METADATA
# title: Sizes
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.sizes

violation contains {"msg": "large", "details": {"replicas": input.object.spec.replicas}} if input.object.spec.replicas > 3

violation contains {"msg": sprintf("%d is odd", [input.object.spec.replicas])} if input.object.spec.replicas % 2 == 1

violation contains {"msg": "never"} if {
	input.object.spec.list
	some i, a in input.object.spec.list
	some j, b in input.object.spec.list
	i < j
	a == b
}
`

// TestFirstSeen_IsOfTheMessage follows violations through what does not end them: details that change,
// failures, edits of their policy, and evaluation of everything; and through what does.
func TestFirstSeen_IsOfTheMessage(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return time.Date(2026, 1, 1, 0, minutes, 0, 0, time.UTC) }
	set := load(t, sizes)
	opts := policy.EngineOptions{Set: set, Bindings: bindingsOf(set), Limits: policy.Limits{Evaluation: ms}, CPU: steps(), Clock: func() time.Time { return now }}
	mustDo(t, w, deployment("fleet/a", "x", map[string]any{"replicas": 5}), deployment("fleet/a", "twin", map[string]any{"replicas": 4}))
	e, cursor := engineOn(t, w, opts)
	minute := 0
	next := func() { minute++; now = at(minute) }
	wants := func(name string, want map[string]time.Time) {
		t.Helper()
		v, ok := e.State().Get("test.sizes", policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: name}})
		if !ok {
			t.Fatalf("no verdict on %s", name)
		}
		got := map[string]time.Time{}
		for i, x := range v.Violations {
			got[x.Msg] = v.FirstSeen.At(i)
		}
		if v.State == policy.Error {
			got["Error"] = v.FirstSeen.At(0)
		}
		if !maps.Equal(got, want) {
			t.Errorf("minute %d: %s: %v, want %v", minute, name, got, want)
		}
	}
	put := func(name string, spec map[string]any) {
		t.Helper()
		next()
		mustDo(t, w, deployment("fleet/a", name, spec))
		apply(t, e, cursor)
	}
	type times = map[string]time.Time
	wants("x", times{"large": at(0), "5 is odd": at(0)})
	put("x", map[string]any{"replicas": 7}) // details and one message are others
	wants("x", times{"large": at(0), "7 is odd": at(1)})

	next() // objects of equal content have one evaluation, and times of their own
	for i := range 200 {
		mustDo(t, w, deployment("fleet/a", fmt.Sprint("new", i), map[string]any{"replicas": 9}))
	}
	mustDo(t, w, deployment("fleet/a", "x", map[string]any{"replicas": 9}), deployment("fleet/a", "twin", map[string]any{"replicas": 9}))
	apply(t, e, cursor)
	wants("x", times{"large": at(0), "9 is odd": at(2)})
	wants("twin", times{"large": at(0), "9 is odd": at(2)})
	wants("new0", times{"large": at(2), "9 is odd": at(2)})
	wants("new199", times{"large": at(2), "9 is odd": at(2)})

	list := []any{}
	for i := range 1000 {
		list = append(list, fmt.Sprint(i))
	}
	put("x", map[string]any{"replicas": 9, "list": list}) // it takes too long
	wants("x", times{"Error": at(3)})
	next()
	mustDo(t, w, deployment("fleet/a", "twin", map[string]any{"replicas": 9, "more": 1}))
	apply(t, e, cursor) // it is tried again
	wants("x", times{"Error": at(3)})
	put("x", map[string]any{"replicas": 9})
	wants("x", times{"large": at(0), "9 is odd": at(2)})

	next() // an edit
	edited := load(t, sizes+"\nviolation contains {\"msg\": \"named x\"} if input.object.metadata.name == \"x\"\n")
	if _, err := e.Configure(t.Context(), edited, bindingsOf(edited)); err != nil {
		t.Fatal(err)
	}
	wants("x", times{"large": at(0), "9 is odd": at(2), "named x": at(6)})
	next()
	if _, err := e.Reset(t.Context(), w.index.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	cursor = w.index.Cursor(w.index.Snapshot())
	wants("x", times{"large": at(0), "9 is odd": at(2), "named x": at(6)})

	put("x", map[string]any{"replicas": 2}) // they end, and come back
	wants("x", times{"named x": at(6)})
	put("x", map[string]any{"replicas": 5})
	wants("x", times{"large": at(9), "5 is odd": at(9), "named x": at(6)})
}
