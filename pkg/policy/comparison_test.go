package policy_test

import (
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

func besideOf(t testing.TB, was, is string) *policy.Set {
	t.Helper()
	return policy.Beside(loadSourcesOf(t, []string{was}), []policy.Candidate{{Source: "one", Set: loadSourcesOf(t, []string{is})}})
}

func scopeState(kind aggregate.Kind, version string, s aggregate.State, members ...string) (ops []op) {
	for _, m := range members {
		ops = append(ops, op{Do: "reopen", Member: m, Kind: kind, Version: version, State: s})
	}
	return ops
}

// TestCompare_UnknownIsNotAbsent lets a candidate know nothing, because of what it reads nothing may be
// read: that there is nothing against it is no evidence.
func TestCompare_UnknownIsNotAbsent(t *testing.T) {
	t.Parallel()
	blind := strings.ReplaceAll(largeThree, "input.object.spec.replicas > 3", `data.fleet.by_name["Namespace"][""]["shop"]`)
	set := besideOf(t, largeThree, blind)
	w := versionWorld(t)
	mustDo(t, w, scopeState("Namespace", "v1", aggregate.Forbidden, worldMembers...)...)
	e, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{nextOf(set, "test.large", nil, true)}})
	n := e.State().Total("test.large")
	c, _ := e.State().Compare("test.large")
	if n.Unknown != 3 || n.Known != 0 {
		t.Fatalf("the candidate's verdicts are %+v", n)
	}
	if c.Complete && c.New == 0 && c.Errors == 0 {
		t.Errorf("none of its %d verdicts is known, and the evidence is %+v", n.Unknown, c)
	}
}

// TestCompare_WaitsForTheFormer lets a member be listed again: what the former version has not read yet is not
// what only the candidate finds.
func TestCompare_WaitsForTheFormer(t *testing.T) {
	t.Parallel()
	named := strings.ReplaceAll(largeThree, "input.object.spec.replicas > 3", `data.fleet.by_name["Namespace"][""]["shop"][input.ref.member]`)
	set := besideOf(t, named, strings.ReplaceAll(largeThree, "> 3", "> 0"))
	w := versionWorld(t)
	mustDo(t, w, scopeState("Namespace", "v1", aggregate.Synced, worldMembers...)...)
	for _, m := range worldMembers {
		mustDo(t, w, op{Do: "put", Member: m, Kind: "Namespace", Name: "shop", Object: map[string]any{}})
	}
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{nextOf(set, "test.large", nil, false)}})
	if c, _ := e.State().Compare("test.large"); !c.Complete || c.New != 0 || c.Gone != 0 {
		t.Fatalf("all is read: %+v", c)
	}
	// A member is listed again: its Deployments are there, its Namespaces are not yet.
	mustDo(t, w, op{Do: "leave", Member: "fleet/c"}, op{Do: "join", Member: "fleet/c"})
	mustDo(t, w, scopeState("Deployment.apps", "apps/v1", aggregate.Synced, "fleet/c")...)
	mustDo(t, w, scopeState("Namespace", "v1", aggregate.Syncing, "fleet/c")...)
	mustDo(t, w, deployment("fleet/c", "web", map[string]any{"app": "shop", "replicas": 2}))
	apply(t, e, cursor)
	if e.State().BindingSynced("test.large") {
		t.Fatal("the former version does not wait")
	}
	if c, _ := e.State().Compare("test.large"); c.Complete && c.New > 0 {
		t.Errorf("the former version waits for Namespaces, and the evidence is %+v", c)
	}
}

// TestCompare_OfAFormerThatFails lets a candidate repair a version whose evaluation fails: what that hides is not new.
func TestCompare_OfAFormerThatFails(t *testing.T) {
	t.Parallel()
	broken := strings.ReplaceAll(largeThree, "input.object.spec.replicas > 3", "n > 1") +
		"\n\nn := 2 if input.object.spec.replicas > 3\n\nn := 3 if input.object.spec.replicas == 4\n"
	set := besideOf(t, broken, largeThree)
	w := versionWorld(t)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{nextOf(set, "test.large", nil, false)}})
	apply := func(n int) policy.Comparison {
		mustDo(t, w, deployment("fleet/b", "web", map[string]any{"app": "shop", "replicas": n}))
		apply(t, e, cursor)
		c, _ := e.State().Compare("test.large")
		return c
	}
	if c := apply(5); c.New != 0 || c.Gone != 0 {
		t.Fatalf("both find it: %+v", c)
	}
	c := apply(4)
	if n := e.State().Total("test.large"); n.Errors != 1 {
		t.Fatalf("the former version does not fail: %+v", n)
	}
	if c.New != 0 {
		t.Errorf("a violation that the former version's failure hides is new: %+v", c)
	}
}

// TestCompare_WaitsForRetries lets an evaluation take too long: it is tried again, as a busy machine is no reason for a
// lasting Error, and is no evidence before.
func TestCompare_WaitsForRetries(t *testing.T) {
	t.Parallel()
	slow := strings.ReplaceAll(largeThree, "input.object.spec.replicas > 3", `count([1 | some i in numbers.range(1, 3000); some j in numbers.range(1, 3000); i == j + input.object.spec.replicas]) > 0`)
	slow = strings.ReplaceAll(slow, "if count", "if {\n\tinput.object.spec.replicas == 4\n\tcount") + "\n}\n"
	set := besideOf(t, largeThree, slow)
	w := versionWorld(t)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{nextOf(set, "test.large", nil, false)}, Limits: policy.Limits{Evaluation: 20e6}})
	c, _ := e.State().Compare("test.large")
	if c.Errors != 1 || c.Next.Overruns != 1 {
		t.Fatalf("it takes no time: %+v", c)
	}
	mustDo(t, w, deployment("fleet/a", "other", map[string]any{"app": "shop", "replicas": 1}))
	apply(t, e, cursor)
	again, _ := e.State().Compare("test.large")
	if c.Complete && again.Next.Overruns == 2 {
		t.Errorf("the evidence was complete with %d errors, and then the subject was evaluated again", c.Errors)
	}
}

// TestCompare_MembersThatAreAway lets a member go away for good: what neither version knows of it is evidence of nothing,
// and holds up no candidate.
func TestCompare_MembersThatAreAway(t *testing.T) {
	t.Parallel()
	set := besideOf(t, largeThree, strings.ReplaceAll(largeThree, "> 3", "> 2"))
	w := versionWorld(t)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{nextOf(set, "test.large", nil, false)}})
	compares := func(subjects, more int) {
		t.Helper()
		c, _ := e.State().Compare("test.large")
		if c.Subjects != subjects || c.New != more || c.Gone+c.Errors+c.Unknown+c.Unsettled != 0 || !c.Complete {
			t.Errorf("the evidence is %+v", c)
		}
	}
	compares(3, 1) // of a
	mustDo(t, w, op{Do: "status", Member: "fleet/a", Kind: "Deployment.apps", State: aggregate.Stale})
	apply(t, e, cursor)
	if n := e.State().Total("test.large"); n.Unknown != 1 {
		t.Fatalf("the verdicts are %+v", n)
	}
	compares(3, 0)
	mustDo(t, w, deployment("fleet/c", "web", map[string]any{"app": "shop", "replicas": 3}))
	apply(t, e, cursor)
	compares(3, 1) // of c
}

// TestCompare_OfAFormerThatKnowsNothing lets a candidate no longer read what may not be read. What it finds beyond the former
// version's Unknown verdicts may be new or not; where it finds nothing there is nothing to ask.
func TestCompare_OfAFormerThatKnowsNothing(t *testing.T) {
	t.Parallel()
	blind := strings.ReplaceAll(largeThree, "input.object.spec.replicas > 3", `data.fleet.by_name["Namespace"][""]["shop"]`)
	for than, want := range map[string]struct {
		unsettled int
		complete  bool
	}{"> 2": {2, false}, "> 9": {0, true}} {
		set := besideOf(t, blind, strings.ReplaceAll(largeThree, "> 3", than))
		w := versionWorld(t)
		mustDo(t, w, scopeState("Namespace", "v1", aggregate.Forbidden, worldMembers...)...)
		e, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{nextOf(set, "test.large", nil, false)}})
		if n := e.State().Total("test.large"); n.Unknown != 3 {
			t.Fatalf("the former version's verdicts are %+v", n)
		}
		c, _ := e.State().Compare("test.large")
		if c.New+c.Gone+c.Errors+c.Unknown != 0 || c.Unsettled != want.unsettled || c.Complete != want.complete {
			t.Errorf("%s: the evidence is %+v", than, c)
		}
	}
}
