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

// TestAQuarantineIsOfOneMemberAndEnds has ten odd objects in one member. The verdicts of
// others go on; those of the member that nothing touches stay, and others of it are
// evaluated when the quarantine has ended, which comes later each time.
func TestAQuarantineIsOfOneMemberAndEnds(t *testing.T) {
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
	if text := h.Trouble(); !strings.Contains(text, `member "fleet/b" is quarantined`) || !strings.Contains(text, "time budget") {
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

// TestAQuarantineOfAViewIsAGapOfItsMember is the same for what objects contribute.
func TestAQuarantineOfAViewIsAGapOfItsMember(t *testing.T) {
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
