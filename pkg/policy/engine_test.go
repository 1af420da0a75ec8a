package policy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

func load(t testing.TB, texts ...string) *policy.Set {
	t.Helper()
	var src policy.Source
	for i, text := range texts {
		src.Files = append(src.Files, policy.File{Path: fmt.Sprintf("p%d.rego", i), Data: []byte(text)})
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func oracleTexts(names ...string) []string {
	var out []string
	for _, name := range names {
		out = append(out, oraclePolicies[name])
	}
	return out
}

// engineOn returns an engine that has evaluated a world, and a cursor that follows it.
func engineOn(t testing.TB, w *world, opts policy.EngineOptions) (*policy.Engine, *aggregate.Cursor) {
	t.Helper()
	if opts.Limits.Evaluation == 0 {
		opts.Limits.Evaluation = time.Hour
	}
	e, err := policy.NewEngine(opts)
	if err != nil {
		t.Fatal(err)
	}
	s := w.index.Snapshot()
	if _, err := e.Reset(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	return e, w.index.Cursor(s)
}

func mustDo(t testing.TB, w *world, ops ...op) {
	t.Helper()
	for _, o := range ops {
		if err := w.do(o); err != nil {
			t.Fatal(err)
		}
	}
}

func apply(t testing.TB, e *policy.Engine, cursor *aggregate.Cursor) *policy.Changes {
	t.Helper()
	batch, ok := cursor.Poll()
	if !ok {
		t.Fatal("nothing has changed")
	}
	changes, err := e.Apply(t.Context(), batch, nil)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func deployment(member, name string, spec map[string]any) op {
	return op{Do: "put", Member: member, Kind: "Deployment.apps", NS: "shop", Name: name, Object: map[string]any{"spec": spec}}
}

// TestEngine_ParallelEqualsSequential plays one history through an engine that
// evaluates on many goroutines and through one that has only the caller's.
func TestEngine_ParallelEqualsSequential(t *testing.T) {
	t.Parallel()
	sets, err := oracleSets()
	if err != nil {
		t.Fatal(err)
	}
	w, err := deployments(t, 100)
	if err != nil {
		t.Fatal(err)
	}
	opts := policy.EngineOptions{Set: sets[0].set, Bindings: bindingsOf(sets[0].set), Parallelism: 8}
	many, cursor := engineOn(t, w, opts)
	opts.Parallelism = 1
	one, _ := engineOn(t, w, opts)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = many.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		for range 50 {
			mustDo(t, w, small.op(r))
		}
		batch, _ := cursor.Poll()
		for _, e := range []*policy.Engine{many, one} {
			if _, err := e.Apply(t.Context(), batch, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, b := range opts.Bindings {
			got, want := many.State().Total(b.Name), one.State().Total(b.Name)
			if got != want {
				t.Fatalf("%s: %+v, one goroutine gives %+v", b.Name, got, want)
			}
			for v := range one.State().Verdicts(b.Name, "") {
				if got, _ := many.State().Get(b.Name, v.Subject); textOf(got) != textOf(v) {
					t.Fatalf("%s: %v, one goroutine gives %v", v.Subject, got, v)
				}
			}
		}
	}
}

// TestEngine_UnreadChangesCostNoEvaluation changes a status that no policy reads.
func TestEngine_UnreadChangesCostNoEvaluation(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 10)
	if err != nil {
		t.Fatal(err)
	}
	set := load(t, oracleTexts("skew", "budget", "divide")...)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set)})
	spec := map[string]any{"app": "shop", "image": "web:1", "replicas": 1}
	mustDo(t, w, deployment("fleet/a", "d0", spec))
	apply(t, e, cursor)
	before := e.Stats()
	for i := range 5 {
		beat := deployment("fleet/a", "d0", spec)
		beat.Object["status"] = map[string]any{"beat": i}
		mustDo(t, w, beat)
		if changes := apply(t, e, cursor); changes.After.Snapshot.Revision() != w.index.Snapshot().Revision() {
			t.Error("the state is not that of the newest snapshot")
		}
	}
	after := e.Stats()
	if after.Evaluations != before.Evaluations || after.ViewEvaluations != before.ViewEvaluations {
		t.Errorf("five heartbeats cost %d evaluations and %d of views", after.Evaluations-before.Evaluations, after.ViewEvaluations-before.ViewEvaluations)
	}
	if got := after.Unchanged - before.Unchanged; got != 5*3 { // two policies of objects, and a view
		t.Errorf("%d evaluations were saved, want 15", got)
	}
}

// TestEngine_DeltaCostIsItsDependents counts evaluations and reads as the fleet grows.
func TestEngine_DeltaCostIsItsDependents(t *testing.T) {
	t.Parallel()
	set := load(t, oracleTexts("skew", "unique_host")...)
	var costs []string
	for _, n := range []int{50, 500, 5000} {
		w, err := deployments(t, n)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6 { // of which three serve one host
			mustDo(t, w, op{
				Do: "put", Member: []string{"fleet/a", "fleet/b"}[i%2], Kind: "Ingress.networking.k8s.io", NS: "shop", Name: fmt.Sprintf("i%d", i),
				Object: map[string]any{"spec": map[string]any{"hosts": []any{[]string{"a.example", "b.example"}[i/3]}}},
			})
		}
		e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set)})
		before := e.Stats()
		mustDo(t, w, deployment("fleet/a", "d7", map[string]any{"image": "web:2"}))
		apply(t, e, cursor)
		middle := e.Stats()
		mustDo(t, w, op{
			Do: "put", Member: "fleet/a", Kind: "Ingress.networking.k8s.io", NS: "shop", Name: "new",
			Object: map[string]any{"spec": map[string]any{"hosts": []any{"a.example"}}},
		})
		apply(t, e, cursor)
		after := e.Stats()
		costs = append(costs, fmt.Sprintf("%d+%d evaluations, %d+%d reads", middle.Evaluations-before.Evaluations, after.Evaluations-middle.Evaluations, middle.Reads-before.Reads, after.Reads-middle.Reads))
	}
	// The Deployment and its namesake; the new Ingress and the three of its host.
	if want := "2+4 evaluations, 2+4 reads"; costs[0] != want || costs[1] != want || costs[2] != want {
		t.Errorf("costs %q, want %q of each", costs, want)
	}
}

// TestEngine_CleanVerdictsTakeNoMemory holds pairs that read only their own object to the
// table of reads and to the findings: neither has them.
func TestEngine_CleanVerdictsTakeNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory, with one goroutine")
	}
	t.Parallel()
	w, err := deployments(t, 3000)
	if err != nil {
		t.Fatal(err)
	}
	set := load(t, `# METADATA
# title: Some
# custom: {severity: low, kinds: ["Deployment.apps"]}
package some

violation contains {"msg": "two"} if input.object.spec.replicas == 2
`)
	e, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{{Name: "d", Package: "some"}}})
	stats := e.Stats()
	if stats.Evaluations != 6000 || stats.Pairs != 0 || stats.Edges != 0 || stats.ReadSets != 1 {
		t.Errorf("6000 pairs are held as %+v", stats)
	}
	if stats.DependencyBytes > 8*6000 {
		t.Errorf("they take %d bytes, more than 8 of each", stats.DependencyBytes)
	}
	found := 0
	for range e.State().Findings("d", "") {
		found++
	}
	if n := e.State().Total("d").Violations; found != n || n != 2000 {
		t.Errorf("%d findings of %d violations, want 2000", found, n)
	}
}

// TestEngine_ConfigureEvaluatesWhatChanged changes one of several bindings.
func TestEngine_ConfigureEvaluatesWhatChanged(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 20)
	if err != nil {
		t.Fatal(err)
	}
	set := load(t, oracleTexts("divide", "skew", "budget")...)
	bindings := bindingsOf(set)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings})
	mustDo(t, w, op{Do: "put", Member: "fleet/a", Kind: "Deployment.apps", NS: "shop", Name: "d0", Object: map[string]any{"spec": map[string]any{"replicas": 2, "image": "web:2"}}}) // what was compared of it makes no difference
	apply(t, e, cursor)
	evaluated := func(do func()) int64 {
		before := e.Stats().Evaluations
		do()
		return e.Stats().Evaluations - before
	}
	configure := func(set *policy.Set, bindings []policy.Binding) func() {
		return func() {
			if _, err := e.Configure(t.Context(), set, bindings); err != nil {
				t.Fatal(err)
			}
		}
	}
	health := func(name string) int64 { h, _ := e.State().Health(name); return h.Evaluations }
	if n := evaluated(configure(set, bindings)); n != 0 {
		t.Errorf("the same bindings cost %d evaluations", n)
	}
	bindings[0].Mode = policy.Enforce
	if n := evaluated(configure(set, bindings)); n != 0 {
		t.Errorf("another mode costs %d evaluations", n)
	}
	was := health("oracle.skew")
	if was == 40 {
		t.Fatal("evaluating all would not be noticed")
	}
	changed := load(t, strings.ReplaceAll(oraclePolicies["divide"], "x > 3", "x > 5"), oraclePolicies["skew"], oraclePolicies["budget"])
	configure(changed, bindings)()
	if n := health("oracle.divide"); n != 40 {
		t.Errorf("a changed policy is evaluated %d times, want 40", n)
	}
	if n := health("oracle.skew"); n != was {
		t.Errorf("the policy beside it is evaluated %d times more", n-was)
	}
}

// TestState_NotSyncedBeforeTheFirstFullSync follows Synced.
func TestState_NotSyncedBeforeTheFirstFullSync(t *testing.T) {
	t.Parallel()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, w,
		op{Do: "join", Member: "fleet/a"}, op{Do: "join", Member: "fleet/b"},
		op{Do: "reopen", Member: "fleet/a", Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced})
	set := load(t, oraclePolicies["divide"])
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set)})
	if e.State().Synced {
		t.Error("synced without a scope in fleet/b")
	}
	mustDo(t, w, op{Do: "reopen", Member: "fleet/b", Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Syncing})
	if apply(t, e, cursor).After.Synced {
		t.Error("synced while a scope is Syncing")
	}
	mustDo(t, w, op{Do: "status", Member: "fleet/b", Kind: "Deployment.apps", State: aggregate.Forbidden})
	if !apply(t, e, cursor).After.Synced {
		t.Error("not synced, though it is known of every scope what becomes of it")
	}
	mustDo(t, w, op{Do: "status", Member: "fleet/b", Kind: "Deployment.apps", State: aggregate.Syncing})
	if !apply(t, e, cursor).After.Synced {
		t.Error("what was synced once stays so")
	}
}

// TestEngine_JoiningMemberMakesItsReadersUnknown: it was not there, so that a selection
// of members by name did not have it.
func TestEngine_JoiningMemberMakesItsReadersUnknown(t *testing.T) {
	t.Parallel()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, w,
		op{Do: "join", Member: "fleet/c"},
		op{Do: "reopen", Member: "fleet/c", Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced},
		op{Do: "put", Member: "fleet/c", Kind: "Deployment.apps", NS: "shop", Name: "db", Object: map[string]any{"spec": map[string]any{"replicas": 0}}})
	set := load(t, oraclePolicies["home"])
	bindings := bindingsOf(set)
	bindings[0].Parameters = map[string]any{"home": "fleet/a"}
	bindings[0].Visibility.Names = []string{"fleet/[ab]"}
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings})
	if n := e.State().Total("oracle.home"); n.Known != 1 || n.Violations != 1 {
		t.Fatalf("at first %+v", n)
	}
	mustDo(t, w, op{Do: "join", Member: "fleet/a"})
	if n := apply(t, e, cursor).After.Total("oracle.home"); n.Unknown != 1 {
		t.Errorf("with a member of which nothing is known %+v", n)
	}
}

// TestEngine_BoundsAndReportsLargeViews gives views little room.
func TestEngine_BoundsAndReportsLargeViews(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 40)
	if err != nil {
		t.Fatal(err)
	}
	set := load(t, `# METADATA
# title: A view
# custom: {severity: low, kinds: ["Deployment.apps"]}
package a.view

view.names[name] contains input.ref.member if name := input.ref.name

violation contains {"msg": "there"} if data.fleet.views["a.view"].names[input.ref.name]
`, oraclePolicies["divide"])
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set), Limits: policy.Limits{Evaluation: time.Hour, View: 25_000}})
	if got := e.State().Total("a.view"); got.Violations != 80 {
		h, _ := e.State().Health("a.view")
		for v := range e.State().Findings("a.view", "") {
			t.Log(v.Message)
			break
		}
		t.Fatalf("%+v, want 80 violations; %+v", got, h)
	}
	divide := e.State().Total("oracle.divide")
	for i := range 40 {
		mustDo(t, w, deployment("fleet/a", fmt.Sprintf("more%d", i), map[string]any{"replicas": 5}))
	}
	apply(t, e, cursor)
	if got := e.State().Total("a.view"); got.Errors != 120 || got.Violations != 0 {
		t.Errorf("%+v, want Errors only", got)
	}
	if h, _ := e.State().Health("a.view"); !strings.Contains(h.Views, "more than 25000") {
		t.Errorf("health %+v", h)
	}
	if stats := e.Stats(); stats.ViewBytes > 2*25_000 {
		t.Errorf("the view holds %d bytes", stats.ViewBytes)
	}
	if got := e.State().Total("oracle.divide"); got.Known != divide.Known+40 {
		t.Errorf("the other binding has %+v, had %+v", got, divide)
	}
}

// TestNewEngine_ValidatesOptions gives each a value that it cannot have.
func TestNewEngine_ValidatesOptions(t *testing.T) {
	t.Parallel()
	set := load(t, oraclePolicies["divide"])
	for name, opts := range map[string]policy.EngineOptions{
		"no set":      {},
		"parallelism": {Set: set, Parallelism: -1},
		"limit":       {Set: set, Limits: policy.Limits{Read: -1}},
		"package":     {Set: set, Bindings: []policy.Binding{{Name: "x", Package: "none"}}},
		"two of one":  {Set: set, Bindings: []policy.Binding{{Name: "x", Package: "oracle.divide"}, {Name: "x", Package: "oracle.divide"}}},
		"pattern":     {Set: set, Bindings: []policy.Binding{{Name: "x", Package: "oracle.divide", Members: policy.MemberSelector{Names: []string{"["}}}}},
		"reason":      {Set: set, Bindings: []policy.Binding{{Name: "x", Package: "oracle.divide", Exemptions: []policy.Exemption{{}}}}},
		"mode":        {Set: set, Bindings: []policy.Binding{{Name: "x", Package: "oracle.divide", Mode: "Force"}}},
		"parameters":  {Set: set, Bindings: []policy.Binding{{Name: "x", Package: "oracle.divide", Parameters: map[string]any{"no": 1}}}},
	} {
		if _, err := policy.NewEngine(opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
