package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

const quadratic = `# METADATA
# title: Quadratic in what the object has
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.quadratic

violation contains {"msg": "too many"} if input.object.spec.replicas > 3

violation contains {"msg": "twins"} if {
	some i, a in input.object.spec.list
	some j, b in input.object.spec.list
	i < j
	a == b
}
`

// quadraticView is the same work, in a view.
const quadraticView = `# METADATA
# title: A view quadratic in what the object has
# custom: {severity: low, kinds: ["Deployment.apps"], subject: view.apps}
package test.view

view.apps[input.ref.name] contains count([1 |
	some i, a in input.object.spec.list
	some j, b in input.object.spec.list
	a == b
])

violation contains {"msg": "known"}
`

// TestQuarantine_IsPerMemberAndEnds has ten odd objects in one member. The verdicts of
// others go on; those of the member that nothing touches stay, and others of it are
// evaluated when the quarantine has ended, which comes later each time.
func TestQuarantine_IsPerMemberAndEnds(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	const name = "test.quadratic"
	mustDo(t, w, deployment("fleet/a", "good", map[string]any{"replicas": 5}), deployment("fleet/b", "good", map[string]any{"replicas": 5}),
		deployment("fleet/b", "still", map[string]any{"replicas": 5}))
	set := load(t, quadratic)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	opts := policy.EngineOptions{
		Set: set, Bindings: bindingsOf(set), Limits: policy.Limits{Evaluation: ms}, CPU: steps(), Clock: func() time.Time { return now },
	}
	e, cursor := engineOn(t, w, opts)
	list := []any{}
	for i := range 1000 {
		list = append(list, fmt.Sprint(i))
	}
	odd := func(round int) {
		t.Helper()
		for i := range 10 {
			mustDo(t, w, deployment("fleet/b", fmt.Sprintf("odd%d", i), map[string]any{"replicas": round, "list": list}))
		}
		apply(t, e, cursor)
	}
	state := func(member, object string) policy.VerdictState {
		t.Helper()
		v, ok := e.State().Get(name, policy.Subject{Ref: aggregate.Ref{Member: member, Kind: "Deployment.apps", Namespace: "shop", Name: object}})
		if !ok {
			t.Fatalf("no verdict on %s of %s", object, member)
		}
		return v.State
	}
	odd(1)
	h, _ := e.State().Health(name)
	if len(h.Quarantines) != 1 || h.Quarantines[0].Member != "fleet/b" || h.Quarantines[0].Until != now.Add(time.Minute) || !e.State().Retry.Equal(now.Add(time.Minute)) {
		t.Fatalf("quarantines %+v, retry at %v", h.Quarantines, e.State().Retry)
	}
	if text := h.Problem(); !strings.Contains(text, `member "fleet/b" is quarantined`) || !strings.Contains(text, "time budget") {
		t.Errorf("it says %q", text)
	}
	mustDo(t, w, deployment("fleet/a", "good", map[string]any{"replicas": 6}), deployment("fleet/b", "good", map[string]any{"replicas": 6}))
	apply(t, e, cursor)
	if got := state("fleet/a", "good"); got != policy.Known {
		t.Errorf("the other member's: %v", got)
	}
	if got := state("fleet/b", "still"); got != policy.Known {
		t.Errorf("one that nothing touches: %v", got)
	}
	if got := state("fleet/b", "good"); got != policy.Error {
		t.Errorf("one that is held back: %v", got)
	}
	if got := e.State().Total(name); got != (policy.Counts{Known: 2, Errors: 11, Violations: 2}) {
		t.Errorf("in quarantine: %+v", got)
	}

	now = now.Add(time.Minute)
	if _, err := e.Configure(t.Context(), set, opts.Bindings); err != nil { // what is configured
		t.Fatal(err)
	}
	if got := e.State().Total(name); got != (policy.Counts{Known: 3, Errors: 10, Violations: 3}) || !e.State().Retry.IsZero() {
		t.Errorf("after it: %+v, retry at %v", got, e.State().Retry)
	}
	odd(2) // at once again
	if want := now.Add(2 * time.Minute); !e.State().Retry.Equal(want) {
		t.Errorf("retry at %v, want %v", e.State().Retry, want)
	}
	mustDo(t, w, deployment("fleet/b", "good", map[string]any{"replicas": 1}))
	apply(t, e, cursor)
	now = now.Add(2 * time.Minute)
	mustDo(t, w, deployment("fleet/a", "good", map[string]any{"replicas": 1}))
	apply(t, e, cursor) // a batch does as well
	if got := state("fleet/b", "good"); got != policy.Known {
		t.Errorf("after the second: %v", got)
	}
	now = now.Add(time.Hour)
	odd(3)
	if want := now.Add(time.Minute); !e.State().Retry.Equal(want) {
		t.Errorf("long after: retry at %v, want %v", e.State().Retry, want)
	}
	mustDo(t, w, op{Do: "leave", Member: "fleet/b"})
	apply(t, e, cursor)
	if h, _ := e.State().Health(name); len(h.Quarantines) > 0 || !e.State().Retry.IsZero() {
		t.Errorf("when the member is gone: %+v", h.Quarantines)
	}
}

// TestQuarantine_OfAViewIsAGapOfItsMember is the same for what objects contribute.
func TestQuarantine_OfAViewIsAGapOfItsMember(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	list := []any{}
	for i := range 1000 {
		list = append(list, fmt.Sprint(i))
	}
	for i := range 10 {
		mustDo(t, w, deployment("fleet/b", fmt.Sprintf("odd%d", i), map[string]any{"list": list}))
	}
	mustDo(t, w, deployment("fleet/a", "good", map[string]any{}))
	set := load(t, quadraticView)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	opts := policy.EngineOptions{
		Set: set, Bindings: bindingsOf(set), Limits: policy.Limits{Evaluation: ms}, CPU: steps(), Clock: func() time.Time { return now },
	}
	e, cursor := engineOn(t, w, opts)
	mustDo(t, w, deployment("fleet/b", "late", map[string]any{}))
	apply(t, e, cursor)
	if got := e.State().Total("test.view"); got != (policy.Counts{Unknown: 1, Violations: 1}) || !e.State().Retry.Equal(now.Add(time.Minute)) {
		t.Errorf("in quarantine: %+v, retry at %v", got, e.State().Retry)
	}
	now = now.Add(time.Minute)
	if _, err := e.Configure(t.Context(), set, opts.Bindings); err != nil {
		t.Fatal(err)
	}
	if got := e.State().Total("test.view"); got != (policy.Counts{Unknown: 2, Violations: 2}) {
		t.Errorf("after it: %+v", got)
	}
}

// TestQuarantine_BoundsTheDelayBySlowEvaluationsOfAMember has one member whose
// objects are slow to evaluate, each within its budget, and change all the time. What
// passes meanwhile forgives, so that a little of it is no quarantine.
func TestQuarantine_BoundsTheDelayBySlowEvaluationsOfAMember(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	const name = "test.quadratic"
	set := load(t, quadratic)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e, cursor := engineOn(t, w, policy.EngineOptions{
		Set: set, Bindings: bindingsOf(set), CPU: steps(), Clock: func() time.Time { return now }, Parallelism: 2,
		// A step is a millisecond: each evaluation takes a tenth of its time or more.
		Limits: policy.Limits{Evaluation: 10 * time.Millisecond, Slow: 300 * time.Millisecond},
	})
	different := func(object int) (list []any) { // what is alike is evaluated once
		for i := range 10 {
			list = append(list, fmt.Sprintf("%d of %d", i, object))
		}
		return list
	}
	change := func(member string, objects, replicas int) {
		t.Helper()
		for i := range objects {
			mustDo(t, w, deployment(member, fmt.Sprintf("slow%d", i), map[string]any{"replicas": replicas, "list": different(i)}))
		}
		apply(t, e, cursor)
	}
	for i := range 40 {
		change("fleet/a", 12, i)
		now = now.Add(time.Second)
	}
	if h, _ := e.State().Health(name); len(h.Quarantines) > 0 || h.Evaluations < 480 {
		t.Fatalf("a little at a time: %+v", h)
	}
	change("fleet/b", 200, 5)
	h, _ := e.State().Health(name)
	if len(h.Quarantines) != 1 || h.Quarantines[0].Member != "fleet/b" || !strings.Contains(h.Problem(), "evaluations are slow: they took 3") {
		t.Fatalf("much at once: %+v, %q", h.Quarantines, h.Problem())
	}
	if h.Errors > 0 || h.Overruns > 0 {
		t.Errorf("each has an answer: %+v", h)
	}
	change("fleet/a", 12, 5)
	got := e.State().Total(name)
	if got.Errors == 0 || got.Errors >= 200 || got.Known+got.Errors != 212 {
		t.Errorf("in quarantine: %+v", got)
	}
	now = now.Add(time.Minute)
	change("fleet/b", 1, 6)
	if h, _ := e.State().Health(name); len(h.Quarantines) != 1 || !h.Quarantines[0].Until.After(now) {
		t.Errorf("what is as slow as before is quarantined again when it is evaluated again: %+v", h.Quarantines)
	}
}
