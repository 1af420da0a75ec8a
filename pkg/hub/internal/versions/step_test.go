package versions

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/offline"
	"federator.dev/federator/pkg/hub/internal/promotion"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// TestPlan_StepFollowsWhatIsRecorded: the record of another version is none, times are whole
// seconds, and what has ended keeps its evidence.
func TestPlan_StepFollowsWhatIsRecorded(t *testing.T) {
	t.Parallel()
	plan := &Plan{Former: version(t, "A", `{"n":1}`), Next: version(t, "A", `{"n":2}`)}
	terms := promotion.Terms{Shadow: time.Minute}
	good := &v1alpha1.RolloutEvidence{Complete: true, Subjects: 7}
	now := time.Unix(1000, 999)
	recorded := &v1alpha1.PolicyRolloutStatus{Candidate: candidate(t, "B", "", v1alpha1.RolloutTakenBack)}
	step := func(evidence *v1alpha1.RolloutEvidence) *v1alpha1.CandidateVersion {
		c := plan.Step(recorded, &terms, &promotion.Facts{}, evidence, nil, now)
		recorded = &v1alpha1.PolicyRolloutStatus{Candidate: c}
		return c
	}
	began, counts := metav1.Unix(1000, 0), metav1.Unix(1030, 0)
	if c := step(nil); c.Phase != v1alpha1.RolloutShadow || !c.Began.Equal(&began) || !c.Since.Equal(&began) || c.Evidence != nil || c.Digest != plan.Next.Digest {
		t.Errorf("%+v", c)
	}
	// The shadow counts from the first evidence: nothing was judged before, however long that was.
	now = now.Add(30 * time.Second)
	if c := step(good); c.Phase != v1alpha1.RolloutShadow || !c.Began.Equal(&began) || !c.Since.Equal(&counts) || *c.Evidence != *good {
		t.Errorf("%+v", c)
	}
	if c := step(nil); c.Evidence == nil || c.Evidence.Subjects != 7 || !c.Since.Equal(&counts) {
		t.Errorf("evidence is forgotten while there is none: %+v", c)
	}
	now = now.Add(time.Minute)
	if c := step(nil); c.Phase != v1alpha1.RolloutShadow {
		t.Errorf("evidence that was recorded, by another process maybe, ends the shadow: %+v", c)
	}
	if c := step(good); c.Phase != v1alpha1.RolloutPromoted || !c.Began.Equal(&began) || c.Since.Unix() != 1090 {
		t.Errorf("%+v", c)
	}
	if c := step(&v1alpha1.RolloutEvidence{}); c.Phase != v1alpha1.RolloutPromoted || c.Evidence.Subjects != 7 {
		t.Errorf("%+v", c)
	}
}

func TestWavesOf(t *testing.T) {
	t.Parallel()
	wave := func(generation string, phase v1alpha1.WavePhase) *remediate.WaveStatus {
		return &remediate.WaveStatus{Number: 2, Of: 3, Phase: phase, Generation: generation}
	}
	halt := &remediate.Halt{Reason: v1alpha1.Unhealthy, Generation: "new", Message: "Pod a is Degraded"}
	limit := &remediate.Halt{Reason: v1alpha1.OverLimit, Generation: "new", Message: "too many"}
	for name, c := range map[string]struct {
		status remediate.Status
		want   string
	}{
		"nothing":           {remediate.Status{}, "{Known:false Wave:0 Done:false Failed: Held:}"},
		"of the former one": {remediate.Status{Wave: wave("old", v1alpha1.WaveDone)}, "{Known:false Wave:0 Done:false Failed: Held:}"},
		"in a wave":         {remediate.Status{Wave: wave("new", v1alpha1.WaveSoaking), Waiting: "the window is closed"}, "{Known:true Wave:1 Done:false Failed: Held:the window is closed}"},
		"done":              {remediate.Status{Wave: wave("new", v1alpha1.WaveDone)}, "{Known:true Wave:1 Done:true Failed: Held:}"},
		"failed": {
			remediate.Status{Wave: wave("new", v1alpha1.WaveSoaking), Halted: halt, Halts: []*remediate.Halt{halt}},
			"{Known:true Wave:1 Done:false Failed:a wave did not pass its health gate: Pod a is Degraded Held:halted: Pod a is Degraded}",
		},
		"halted otherwise": {remediate.Status{Halted: limit, Halts: []*remediate.Halt{limit}}, "{Known:false Wave:0 Done:false Failed: Held:halted: too many}"},
	} {
		if got := fmt.Sprintf("%+v", WavesOf(&c.status, "new")); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	halt.Generation = "old"
	if got := WavesOf(&remediate.Status{Halts: []*remediate.Halt{halt}}, "new"); got.Failed != "" {
		t.Errorf("a wave of the former version failed: %+v", got)
	}
}

const badPods = `# METADATA
# title: Bad
# custom: {severity: low, kinds: [Pod]}
package acme.bad

violation contains {"msg": "bad"} if input.object.metadata.labels.bad
`

// podState is the verdicts of a policy on three Pods, of which two violate it.
func podState(t *testing.T) *policy.State {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "bad.rego", Data: []byte(badPods)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := offline.New(offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n, labels := range []string{`{bad: "1"}`, `{bad: "1"}`, `{}`} {
		if err := objects.Add("objects", strings.NewReader(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p%d, namespace: shop, labels: %s}\n", n, labels)), "fleet/a"); err != nil {
			t.Fatal(err)
		}
	}
	x, err := objects.Index(nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: []policy.Binding{{Name: "bad", Package: "acme.bad", Version: "abc"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Reset(t.Context(), x.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	return engine.State()
}

func TestEvidence_OfTheFirstVersion(t *testing.T) {
	t.Parallel()
	var e Evidence
	state := podState(t)
	e.Update(state, []Compared{{UID: "a", Name: "bad", Version: "abc", First: true, Of: "1"}, {UID: "b", Name: "bad", Version: "def", First: true}}, time.Now)
	if got := e.Of("a"); got == nil || got.Of != "1" || got.Subjects != 3 || got.New != 2 || got.Errors != 0 || got.Complete != state.BindingSynced("bad") {
		t.Errorf("%+v", got)
	}
	if got := e.Of("b"); got != nil {
		t.Errorf("evidence of another version: %+v", got)
	}
}

// TestEvidence_FirstVersionThatKnowsNothing was judged on nothing, however long that lasts.
func TestEvidence_FirstVersionThatKnowsNothing(t *testing.T) {
	t.Parallel()
	of := func(states ...aggregate.State) *v1alpha1.RolloutEvidence {
		part, ok := evidenceOf(podsIn(t, states...), &Compared{Name: "bad", Version: "abc", First: true})
		if !ok {
			t.Fatal("the state is of another version")
		}
		is := part.Status()
		return &is
	}
	got := of(aggregate.Stale, aggregate.Stale)
	if got.Complete || got.Unknown != 2 || got.Subjects != 2 {
		t.Errorf("%+v", got)
	}
	facts := promotion.Facts{First: true, Evidence: *got}
	if s := promotion.Begin(time.Unix(0, 0)).Next(&promotion.Terms{}, &facts, time.Unix(7200, 0)); s.Phase != v1alpha1.RolloutShadow || !strings.Contains(s.Message, "once one of its verdicts is known") {
		t.Errorf("%+v", s)
	}
	// A member that is away for days holds up nothing.
	if got := of(aggregate.Stale, aggregate.Synced); !got.Complete || got.Unknown != 0 || got.Subjects != 2 {
		t.Errorf("%+v", got)
	}
}

// podsIn returns the verdicts of a first version on a Pod in each of some members, whose scopes are in these states.
func podsIn(t *testing.T, states ...aggregate.State) *policy.State {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "bad.rego", Data: []byte(badPods)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	for n, state := range states {
		name := fmt.Sprintf("fleet/m%d", n)
		if err := x.PutMember(aggregate.Member{Name: name, UID: name}); err != nil {
			t.Fatal(err)
		}
		scope, err := x.OpenScope(name, "Pod", "v1")
		if err != nil {
			t.Fatal(err)
		}
		item := scope.Item(&aggregate.Record{Namespace: "shop", Name: "a", UID: "a", ResourceVersion: "1", Body: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop"}}`)})
		if _, err := scope.Replace([]aggregate.Item{item}, aggregate.Status{State: state}); err != nil {
			t.Fatal(err)
		}
	}
	engine, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: []policy.Binding{{Name: "bad", Package: "acme.bad", Version: "abc"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Reset(t.Context(), x.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	return engine.State()
}

// TestEvidence_KeepsItsPace: where comparing takes 100 ms, a twentieth of the time goes into it,
// and all policies have their turn; where it takes nothing, each is compared every other second.
func TestEvidence_KeepsItsPace(t *testing.T) {
	t.Parallel()
	state := podState(t)
	list := []Compared{{UID: "a", Name: "bad", Version: "abc", First: true}, {UID: "b", Name: "bad", Version: "abc", First: true}, {UID: "c", Name: "bad", Version: "abc", First: true}}
	for takes, want := range map[time.Duration]int{100 * time.Millisecond: 50, 0: 3 * 50} {
		var e Evidence
		start := time.Unix(1000, 0)
		now, seen, n := start, map[types.UID]time.Time{}, map[types.UID]int{}
		for now.Before(start.Add(100 * time.Second)) {
			e.Update(state, list, func() time.Time { now = now.Add(takes); return now })
			for _, p := range list {
				if at := e.of[p.UID].at; !at.Equal(seen[p.UID]) {
					seen[p.UID] = at
					n[p.UID]++
				}
			}
			now = now.Add(10 * time.Millisecond)
		}
		if total := n["a"] + n["b"] + n["c"]; total > want+3 || total < want*8/10 || n["a"] < total/3-2 || n["c"] < total/3-2 {
			t.Errorf("taking %s: %v comparisons, want %d", takes, n, want)
		}
	}
}
