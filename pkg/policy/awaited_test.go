package policy_test

import (
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// TestState_AwaitsAMemberWithoutScopes: a process that judged nothing is given its first member. Before any scope of it is opened
// there are no verdicts on what it has.
func TestState_AwaitsAMemberWithoutScopes(t *testing.T) {
	t.Parallel()
	set := load(t, otherApp)
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindingsOf(set)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(t.Context(), index.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	cursor := index.Cursor(index.Snapshot())
	awaits := func(what string, want ...string) {
		t.Helper()
		if batch, more := cursor.Poll(); more {
			if _, err := e.Apply(t.Context(), batch, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := e.State().Awaited(); !slices.Equal(got, want) {
			t.Errorf("%s: it awaits %v, want %v", what, got, want)
		}
	}
	awaits("nothing is there")
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a", Version: "v1.36.0"}); err != nil {
		t.Fatal(err)
	}
	awaits("it has joined", "fleet/a")
	scope, err := index.OpenScope("fleet/a", "Deployment.apps", "v1")
	if err != nil {
		t.Fatal(err)
	}
	defer scope.Close()
	awaits("it is being read", "fleet/a")
	if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	awaits("it is read")
}
