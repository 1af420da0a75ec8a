package enforce_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/seed"
)

// shared has remedies for targets that others have remedies for, too.
const shared = `# METADATA
# title: Replicas
# custom: {severity: high, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package replicas

violation contains {"msg": "too few", "remedy": {"action": "patch", "patch": {"spec": {"replicas": 2}}}} if input.object.spec.replicas < 2

violation contains {"msg": sprintf("of %s", [input.ref.name]), "remedy": {
	"action": "patch",
	"target": object.union(input.ref, {"name": "web"}),
	"patch": {"spec": {"replicas": input.object.spec.replicas}},
}} if input.object.spec.replicas > 3
`

// TestCorrector_EqualsFreshCorrector: whatever happens, what is wanted is what a
// Corrector wants that begins with the newest verdicts.
func TestCorrector_EqualsFreshCorrector(t *testing.T) {
	start := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(start, 0)) // a mix, not a secret
		set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(shared)}}}}, policy.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		index := newIndex(t)
		scope := scopeOf(t, index)
		a := &fakeActor{policies: map[string]actorState{}}
		c := enforce.NewCorrector(a, nil)
		loop := startLoop(t, enforce.Options{Index: index, Set: set, Bindings: bindingB, Changed: c.Changed})
		synctest.Wait()
		now := enforce.EnforcementSpec{Mode: policy.Enforce}
		setSpec(t, c, now)
		for step := range 150 {
			name := []string{"web", "db", "api", "job"}[rng.IntN(4)]
			switch n := rng.IntN(20); {
			case n == 0:
				now.Mode = []policy.Mode{policy.Observe, policy.DryRun, policy.Enforce}[rng.IntN(3)]
				setSpec(t, c, now)
			case n == 1:
				now.Ceiling = []*enforce.Ceiling{nil, {Mode: policy.Enforce, Actions: []enforce.AllowedAction{{Verbs: []string{"delete"}, Kinds: []string{"*"}}}}}[rng.IntN(2)]
				now.IgnoreOptOut = rng.IntN(2) == 0
				setSpec(t, c, now)
			case n == 2:
				exempt := []policy.Binding{{Name: "b", Package: "replicas", Exemptions: []policy.Exemption{{Names: []string{name}, Reason: "agreed"}}}}
				if err := loop.Configure(t.Context(), set, exempt[:]); err != nil {
					t.Fatal(err)
				}
			case n == 3:
				scope.SetStatus(aggregate.Status{State: []aggregate.State{aggregate.Synced, aggregate.Stale}[rng.IntN(2)]})
			case n == 4:
				if err := index.PutMember(aggregate.Member{Name: "fleet/b", UID: "b", Labels: []aggregate.Label{{Key: "n", Value: fmt.Sprint(rng.IntN(2))}}}); err != nil {
					t.Fatal(err)
				}
			case n < 8:
				scope.Delete("shop", name)
			default:
				mark := ""
				if rng.IntN(3) == 0 {
					mark = `"annotations":{"federator.dev/protect":""},`
				}
				scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: name, UID: name, ResourceVersion: fmt.Sprint(step), Body: fmt.Appendf(nil,
					`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{%s"name":%q,"namespace":"shop"},"spec":{"replicas":%d}}`, mark, name, rng.IntN(6))}))
			}
			if _, err := scope.Commit(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			fresh := &fakeActor{policies: map[string]actorState{}}
			other := enforce.NewCorrector(fresh, nil)
			other.Changed(&policy.Changes{After: loop.State()}, nil)
			setSpec(t, other, now)
			if got, want := details(a), details(fresh); got != want {
				t.Fatalf("step %d: wants\n%s\nanew\n%s", step, got, want)
			}
			x, y := c.Status("b"), other.Status("b")
			x.Complete, y.Complete, x.OverCeilingReason, y.OverCeilingReason = false, false, "", ""
			if fmt.Sprint(x) != fmt.Sprint(y) {
				t.Fatalf("step %d: stands at %+v, recomputed %+v", step, x, y)
			}
		}
		if a.changes == 0 {
			t.Error("nothing was told as a change")
		}
	})
}

func details(a *fakeActor) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.policies["b"]
	if !ok {
		return "nothing"
	}
	var lines []string
	for _, i := range w.intents {
		i.Revision = 0
		lines = append(lines, fmt.Sprintf("%v %s %s %s %s %s %s", i.Remedy.Target, i.Message, i.Subject, i.UID, i.ResourceVersion, i.APIVersion, i.Remedy.Patch))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%s\n%v", strings.Join(lines, "\n"), w.spec)
}

// TestCorrector_ReportsOnlyChanges, however many corrections are wanted.
func TestCorrector_ReportsOnlyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		for n := range 300 {
			put(t, scope, fmt.Sprint("web-", n), 1)
		}
		a, c, _ := startCorrector(t, index, bindingB)
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce})
		a.describe("b")
		a.reported = 0
		put(t, scope, "web-7", 0)
		put(t, scope, "web-8", 5)
		a.describe("b")
		if got := len(a.policies["b"].intents); got != 299 {
			t.Errorf("%d corrections are wanted, want 299", got)
		}
		if a.reported != 2 {
			t.Errorf("%d targets were reported, want 2", a.reported)
		}
		if err := c.SetSpecs(map[string]enforce.EnforcementSpec{"b": {Mode: policy.Enforce}}); err != nil {
			t.Fatal(err)
		}
		if a.reported != 2 {
			t.Errorf("an unchanged spec reports %d targets", a.reported-2)
		}
	})
}
