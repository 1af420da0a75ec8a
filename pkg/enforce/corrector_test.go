package enforce_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// fakeActor records the last state that it received, by binding.
type fakeActor struct {
	mu       sync.Mutex
	policies map[string]actorState
	changes  int // received
	reported int // targets
}

type actorState struct {
	spec    remediate.RolloutSpec
	totals  remediate.Totals
	intents []remediate.Intent
	ready   bool
}

func (a *fakeActor) SetIntents(binding string, c remediate.RolloutSpec, of remediate.Totals, intents []remediate.Intent, ready bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.policies[binding] = actorState{c, of, intents, ready}
	a.reported += len(intents)
	return nil
}

func (a *fakeActor) UpdateIntents(binding string, c remediate.RolloutSpec, of remediate.Totals, intents []remediate.Intent, gone []policy.Ref, ready bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes++
	a.reported += len(intents) + len(gone)
	w, ok := a.policies[binding]
	if !ok {
		return errors.New("a change of nothing")
	}
	w.spec, w.totals, w.ready = c, of, ready
	w.intents = slices.DeleteFunc(slices.Clone(w.intents), func(i remediate.Intent) bool {
		return slices.Contains(gone, i.Remedy.Target) || slices.ContainsFunc(intents, func(x remediate.Intent) bool { return x.Remedy.Target == i.Remedy.Target })
	})
	w.intents = append(w.intents, intents...)
	a.policies[binding] = w
	return nil
}

// Protected is what is in kube-system, and what is annotated.
func (a *fakeActor) Protected(target policy.Ref, annotations map[string]string) string {
	if _, marked := annotations[api.ProtectKey]; marked || target.Namespace == "kube-system" {
		return "it is protected"
	}
	return ""
}

func (a *fakeActor) ClearIntents(binding string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.policies, binding)
}

func (a *fakeActor) RemovePolicy(binding string) { a.ClearIntents(binding) }

// describe says what a binding wants: target, resourceVersion and more.
func (a *fakeActor) describe(binding string) string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.policies[binding]
	if !ok {
		return "nothing"
	}
	var parts []string
	for _, i := range w.intents {
		parts = append(parts, fmt.Sprintf("%s %s@%s", i.Remedy.Action, i.Remedy.Target.Name, i.ResourceVersion))
	}
	slices.Sort(parts)
	text := strings.Join(parts, ", ")
	if !w.ready {
		text += " (not counted)"
	}
	if w.spec.DryRun {
		text += " (dry run)"
	}
	return text
}

const scale = `# METADATA
# title: Replicas
# custom: {severity: high, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package replicas

violation contains {"msg": "too few", "remedy": {"action": "patch", "patch": {"spec": {"replicas": 2}}}} if input.object.spec.replicas < 2
`

func startCorrector(t *testing.T, index *aggregate.Index, bindings []policy.Binding) (*fakeActor, *enforce.Corrector, *enforce.Loop) {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(scale)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a := &fakeActor{policies: map[string]actorState{}}
	c := enforce.NewCorrector(a, nil)
	loop := startLoop(t, enforce.Options{Index: index, Set: set, Bindings: bindings, Changed: c.Changed})
	synctest.Wait()
	return a, c, loop
}

func setSpec(t *testing.T, c *enforce.Corrector, x enforce.EnforcementSpec) {
	t.Helper()
	if err := c.SetSpecs(map[string]enforce.EnforcementSpec{"b": x}); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, a *fakeActor, what, want string) {
	t.Helper()
	if got := a.describe("b"); got != want {
		t.Errorf("%s: wants %q, want %q", what, got, want)
	}
}

var bindingB = []policy.Binding{{Name: "b", Package: "replicas"}}

func TestCorrector_CorrectsVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		put(t, scope, "web", 1)
		a, c, loop := startCorrector(t, index, bindingB)
		expect(t, a, "without terms", "nothing")
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Observe})
		expect(t, a, "observing", "nothing")
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.DryRun})
		expect(t, a, "trying", "patch web@1 (dry run)")
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Source: "git", Commit: "abc", Path: "p.rego", ActAs: "fixer", Force: true})
		expect(t, a, "enforcing", "patch web@1")
		i := a.policies["b"].intents[0]
		if i.Source != "git" || i.Commit != "abc" || i.ActAs != "fixer" || !i.Force || i.Package != "replicas" || i.Message != "too few" || i.UID != "web" || i.APIVersion != "apps/v1" || i.Revision == 0 {
			t.Errorf("intent %+v", i)
		}
		if of := a.policies["b"].totals; of.Fleet != 1 || of.Members["fleet/a"] != 1 {
			t.Errorf("of %+v", of)
		}
		put(t, scope, "db", 0)
		expect(t, a, "another one", "patch db@0, patch web@1")
		put(t, scope, "web", 5)
		expect(t, a, "one is well", "patch db@0")
		// The target moves in what the policy does not read.
		scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: "db", UID: "db", ResourceVersion: "77", Body: []byte(
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"db","namespace":"shop"},"spec":{"replicas":0},"status":{"x":1}}`)}))
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
		expect(t, a, "a heartbeat", "patch db@77")
		// What is not completely known is not corrected.
		scope.SetStatus(aggregate.Status{State: aggregate.Stale})
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
		expect(t, a, "out of reach", "")
		scope.SetStatus(aggregate.Status{State: aggregate.Synced})
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
		expect(t, a, "back", "patch db@77")
		// An exemption is one more binding.
		exempt := []policy.Binding{{Name: "b", Package: "replicas", Exemptions: []policy.Exemption{{Names: []string{"db"}, Reason: "agreed"}}}}
		set := loop.State().Package("b")
		if set == nil {
			t.Fatal("no package")
		}
		if err := loop.Configure(t.Context(), loadScale(t), exempt); err != nil {
			t.Fatal(err)
		}
		expect(t, a, "exempt", "")
		if err := c.SetSpecs(nil); err != nil {
			t.Fatal(err)
		}
		expect(t, a, "the terms are gone", "nothing")
	})
}

func loadScale(t *testing.T) *policy.Set {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(scale)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestCorrector_WaitsForEveryScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		if err := index.PutMember(aggregate.Member{Name: "fleet/b", UID: "b"}); err != nil {
			t.Fatal(err)
		}
		a, c, _ := startCorrector(t, index, bindingB)
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Generation: "1"})
		expect(t, a, "a member has no scope yet", "patch web@1 (not counted)")
		scope, err := index.OpenScope("fleet/b", "Deployment.apps", "apps/v1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.Forbidden}); err != nil {
			t.Fatal(err)
		}
		expect(t, a, "it is forbidden there", "patch web@1")
		// A member that joins later holds nothing back, a new commit does.
		if err := index.PutMember(aggregate.Member{Name: "fleet/c", UID: "c"}); err != nil {
			t.Fatal(err)
		}
		expect(t, a, "another member joins", "patch web@1")
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Generation: "2"})
		expect(t, a, "a new commit", "patch web@1 (not counted)")
		if s := c.Status("b"); s.Complete || s.Corrections != 1 || s.Mode != policy.Enforce {
			t.Errorf("standing %+v", s)
		}
	})
}

const scaleMore = `# METADATA
# title: Replicas
# custom: {severity: high, kinds: ["Deployment.apps", "StatefulSet.apps"], remedies: [{action: patch, kind: Deployment.apps}, {action: patch, kind: StatefulSet.apps}]}
package replicas

violation contains {"msg": "too few", "remedy": {"action": "patch", "patch": {"spec": {"replicas": 2}}}} if input.object.spec.replicas < 2
`

// TestCorrector_CountsOnlyStatesAfterAChange replaces policies as a hub does for a new
// commit: it pauses, configures, and continues.
func TestCorrector_CountsOnlyStatesAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		a, c, loop := startCorrector(t, index, bindingB)
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Generation: "1"})
		expect(t, a, "the first generation", "patch web@1")
		set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(scaleMore)}}}}, policy.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Generation: "2", Pause: true})
		expect(t, a, "paused", "patch web@1 (not counted)")
		if c.Status("b").Complete {
			t.Error("verdicts of before the change are counted while paused")
		}
		if err := loop.Configure(t.Context(), set, bindingB); err != nil {
			t.Fatal(err)
		}
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Generation: "2"})
		expect(t, a, "a kind that is not listed yet", "patch web@1 (not counted)")
		scope, err := index.OpenScope("fleet/a", "StatefulSet.apps", "apps/v1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
		expect(t, a, "the second generation", "patch web@1")
		// What has been counted is counted while other policies are replaced.
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Generation: "2", Pause: true})
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Generation: "2"})
		expect(t, a, "the same generation again", "patch web@1")
	})
}

func TestCorrector_KeepsToCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		a, c, _ := startCorrector(t, index, bindingB)
		all := []enforce.AllowedAction{{Verbs: []string{"patch"}, Kinds: []string{"*"}}}
		for _, x := range []struct {
			name    string
			ceiling enforce.Ceiling
			hold    string
			want    string
			why     string
		}{
			{"allowed", enforce.Ceiling{Mode: policy.Enforce, Actions: all}, "", "patch web@1", ""},
			{"by name", enforce.Ceiling{Mode: policy.Enforce, Actions: []enforce.AllowedAction{{Verbs: []string{"patch"}, Kinds: []string{"Deployment.apps"}}}}, "", "patch web@1", ""},
			{"mode", enforce.Ceiling{Mode: policy.DryRun, Actions: all}, "", "patch web@1 (dry run)", "ceiling"},
			{"no mode", enforce.Ceiling{Actions: all}, "", "nothing", "ceiling"},
			{"verb", enforce.Ceiling{Mode: policy.Enforce, Actions: []enforce.AllowedAction{{Verbs: []string{"delete"}, Kinds: []string{"*"}}}}, "", "", "may not patch"},
			{"kind", enforce.Ceiling{Mode: policy.Enforce, Actions: []enforce.AllowedAction{{Verbs: []string{"patch"}, Kinds: []string{"Pod"}}}}, "", "", "may not patch"},
			{"namespace", enforce.Ceiling{Mode: policy.Enforce, Actions: all, Namespaces: []string{"pay", "x*"}}, "", "", "namespace"},
			{"member", enforce.Ceiling{Mode: policy.Enforce, Actions: all, Members: policy.MemberSelector{Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}}, "", "", "fleet/a"},
			{"hold", enforce.Ceiling{Mode: policy.Enforce, Actions: all}, "the newest commit is broken", "nothing", "broken"},
		} {
			setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Source: "git", Ceiling: &x.ceiling, Hold: x.hold})
			expect(t, a, x.name, x.want)
			if s := c.Status("b"); !strings.Contains(s.ModeReason+s.OverCeilingReason, x.why) || (x.why == "") != (s.ModeReason+s.OverCeilingReason == "") {
				t.Errorf("%s: standing %+v", x.name, s)
			}
		}
		if err := c.SetSpecs(map[string]enforce.EnforcementSpec{"b": {Mode: "Force"}}); err == nil {
			t.Error("a mode that is none")
		}
		expect(t, a, "after a mistake", "nothing")
	})
}

// TestCorrector_PassesTheSpecOn: what the dispatcher does follows from it alone.
func TestCorrector_PassesTheSpecOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		a, c, _ := startCorrector(t, index, bindingB)
		window, err := remediate.NewWindow("0 2 * * *", time.Hour, "UTC")
		if err != nil {
			t.Fatal(err)
		}
		limits := remediate.Limits{Window: time.Minute, Policy: remediate.Limit{Count: 3}}
		for _, suspend := range []bool{false, true, false} {
			setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Suspend: suspend, Limits: limits, Window: window, Generation: "g"})
			a.describe("b")
			got := a.policies["b"].spec
			if got.Suspend != suspend || got.Generation != "g" || got.Limits != limits || got.Window != window || got.DryRun {
				t.Errorf("suspend %v: %+v", suspend, got)
			}
		}
	})
}

func TestCorrector_WavesHavePresentMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		a, c, _ := startCorrector(t, index, bindingB)
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Waves: []enforce.Wave{
			{Name: "canary", Members: policy.MemberSelector{Names: []string{"fleet/a"}}}, {Name: "rest"},
		}})
		if err := index.PutMember(aggregate.Member{Name: "fleet/b", UID: "b"}); err != nil {
			t.Fatal(err)
		}
		a.describe("b")
		waves := a.policies["b"].spec.Waves
		if len(waves) != 2 || !waves[0].Members["fleet/a"] || waves[0].Members["fleet/b"] || waves[1].Members["fleet/a"] || !waves[1].Members["fleet/b"] {
			t.Errorf("waves %+v", waves)
		}
	})
}

func TestCorrector_CountsProtectedTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: "web", ResourceVersion: "1", Body: []byte(
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"federator.dev/protect":""},"name":"web","namespace":"shop"},"spec":{"replicas":0}}`)}))
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
		a, c, _ := startCorrector(t, index, bindingB)
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Observe})
		a.describe("b")
		if s := c.Status("b"); s.Protected["fleet/a"] != 1 {
			t.Errorf("standing %+v", s)
		}
	})
}
