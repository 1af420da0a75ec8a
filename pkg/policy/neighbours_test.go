package policy_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/explain"
)

// nested is a value that is nested so many levels deep: 256 are too many to read.
func nested(levels int) any {
	var v any = "x"
	for range levels {
		v = map[string]any{"a": v}
	}
	return v
}

const (
	neighbourHeader = "# METADATA\n# title: Neighbour\n# custom: {severity: low, kinds: [\"Deployment.apps\"]}\npackage neighbours.%s\n\n"

	readsSpec   = `violation contains {"msg": "none"} if input.object.spec.replicas == 0`
	readsStatus = `violation contains {"msg": "empty", "details": input.object.status} if input.object.status.a == "never"`

	readsNames = `violation contains {"msg": "other"} if {
	some other in data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name]
	other.metadata.name != input.ref.name
}`
	readsAll = `violation contains {"msg": "x", "details": other} if {
	input.ref.name == "nothing"
	some other in data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name]
}`
)

func neighbourText(name, rules string) string {
	return fmt.Sprintf(neighbourHeader, name) + rules + "\n"
}

func verdictOf(t *testing.T, s *policy.State, binding, member, name string) string {
	t.Helper()
	v, ok := s.Get(binding, policy.Subject{Ref: aggregate.Ref{Member: member, Kind: "Deployment.apps", Namespace: "shop", Name: name}})
	if !ok {
		t.Fatalf("no verdict of %s on %s of %s", binding, name, member)
	}
	return fmt.Sprintf("%v %d %s", v.State, len(v.Violations), v.Message)
}

// TestEngine_FailsOnlyForWhatAPolicyReads: status becomes unreadable, which one of two policies reads. What the other
// one says is the same after Apply and after a full evaluation of the same snapshot.
func TestEngine_FailsOnlyForWhatAPolicyReads(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	put := func(levels int) op {
		return op{Do: "put", Member: "fleet/a", Kind: "Deployment.apps", NS: "shop", Name: "d", Object: map[string]any{"spec": map[string]any{"replicas": 1}, "status": nested(levels)}}
	}
	mustDo(t, w, put(3))
	set := load(t, neighbourText("spec", readsSpec), neighbourText("status", readsStatus))
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set), Parallelism: 1})
	mustDo(t, w, put(300))
	apply(t, e, cursor)
	full, err := policy.Evaluate(t.Context(), policy.EngineOptions{Set: set, Bindings: bindingsOf(set), Parallelism: 1}, w.index.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []string{"neighbours.spec", "neighbours.status"} {
		if got, want := verdictOf(t, e.State(), b, "fleet/a", "d"), verdictOf(t, full, b, "fleet/a", "d"); got != want {
			t.Errorf("%s: after a delta %q, evaluated again %q", b, got, want)
		}
	}
}

// TestEngine_DocumentsHaveOnlyWhatThePolicyReads: a policy that reads names of documents only is given a neighbour that
// reads them whole, and that has no subject at all. Its own verdicts stay what they were, and what Explain finds.
func TestEngine_DocumentsHaveOnlyWhatThePolicyReads(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, w, op{Do: "put", Member: "fleet/a", Kind: "Deployment.apps", NS: "shop", Name: "d", Object: map[string]any{"spec": map[string]any{"replicas": 1}, "status": nested(300)}})
	set := load(t, neighbourText("names", readsNames), neighbourText("all", readsAll))
	alone := []policy.Binding{{Name: "names", Package: "neighbours.names"}}
	both := append([]policy.Binding{{Name: "all", Package: "neighbours.all", Members: policy.MemberSelector{Names: []string{"fleet/none"}}}}, alone...)
	e, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: alone, Parallelism: 1})
	before := verdictOf(t, e.State(), "names", "fleet/a", "d")
	if _, err := e.Configure(t.Context(), set, both); err != nil {
		t.Fatal(err)
	}
	if after := verdictOf(t, e.State(), "names", "fleet/a", "d"); after != before {
		t.Errorf("configured beside another: %q, alone %q", after, before)
	}
	full, err := policy.Evaluate(t.Context(), policy.EngineOptions{Set: set, Bindings: both, Parallelism: 1}, w.index.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if after := verdictOf(t, full, "names", "fleet/a", "d"); after != before {
		t.Errorf("evaluated again beside another: %q, alone %q", after, before)
	}
	x, err := explain.Explain(t.Context(), policy.EngineOptions{Set: set}, full, "names", policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	if x.Reevaluated != nil {
		t.Errorf("Explain finds %v %s, the state has %v %s", x.Reevaluated.State, x.Reevaluated.Message, x.Verdict.State, x.Verdict.Message)
	}
}

// TestEngine_WhatOthersReadCostsNoBudget: the same with healthy objects that are large: what a neighbour without a
// subject reads of them is no cost of the policy that does not read it.
func TestEngine_WhatOthersReadCostsNoBudget(t *testing.T) {
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]any, 700_000) // 1.4 MB, about what an API server takes
	for i := range list {
		list[i] = i % 10
	}
	for i := range 8 {
		m := fmt.Sprintf("fleet/m%d", i)
		mustDo(t, w, op{Do: "join", Member: m, Version: "v1.36.3"}, op{Do: "reopen", Member: m, Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced},
			op{Do: "put", Member: m, Kind: "Deployment.apps", NS: "shop", Name: "d", Object: map[string]any{"spec": map[string]any{"list": list}}})
	}
	set := load(t, neighbourText("names", readsNames), neighbourText("all", readsAll))
	alone := []policy.Binding{{Name: "names", Package: "neighbours.names"}}
	both := append([]policy.Binding{{Name: "all", Package: "neighbours.all", Members: policy.MemberSelector{Names: []string{"fleet/none"}}}}, alone...)
	allocated := func(bindings []policy.Binding) (mib uint64, said string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := policy.Evaluate(t.Context(), policy.EngineOptions{Set: set, Bindings: bindings, Parallelism: 1}, w.index.Snapshot())
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		return (after.TotalAlloc - before.TotalAlloc) >> 20, verdictOf(t, s, "names", "fleet/m0", "d")
	}
	own, saidAlone := allocated(alone)
	beside, saidBeside := allocated(both)
	if beside > 3*own+16 || saidBeside != saidAlone {
		t.Errorf("eight evaluations allocate %d MiB alone, and %d beside a policy without subjects: %q, %q", own, beside, saidAlone, saidBeside)
	}
}

// TestEngine_SharesWhatReadsNoObject: verdicts that read nothing of their object are all alike.
func TestEngine_SharesWhatReadsNoObject(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 12)
	if err != nil {
		t.Fatal(err)
	}
	set := load(t, twinText(heldKind, "", `violation contains {"msg": sprintf("%s is not to be used", [input.ref.kind])}`))
	e, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{{Name: "twins", Package: "twins"}}, Parallelism: 1})
	if s := e.Stats(); s.Evaluations != 24 || s.Memoized != 23 {
		t.Errorf("%d of %d evaluations were shared, want 23 of 24", s.Memoized, s.Evaluations)
	}
}

const heavyWhere = `# METADATA
# title: Heavy where parameters say so
# custom: {severity: low, kinds: ["Deployment.apps"], parameters: {type: object, properties: {heavy: {type: boolean, default: false}}}}
package neighbours.heavy

violation contains {"msg": "too many"} if input.object.spec.replicas > 3

violation contains {"msg": "twins"} if {
	input.parameters.heavy
	some i, a in input.object.spec.list
	some j, b in input.object.spec.list
	i < j
	a == b
}
`

// TestQuarantine_HoldsBesideABindingThatReadsTheSame: a binding is quarantined in a member. Its verdicts there are withheld,
// whether another binding of the same package, which reads the same, is not quarantined or is not there.
func TestQuarantine_HoldsBesideABindingThatReadsTheSame(t *testing.T) {
	t.Parallel()
	set := load(t, heavyWhere)
	heavy := policy.Binding{Name: "heavy", Package: "neighbours.heavy", Parameters: map[string]any{"heavy": true}}
	light := policy.Binding{Name: "light", Package: "neighbours.heavy"}
	list := []any{}
	for i := range 1000 {
		list = append(list, fmt.Sprint(i))
	}
	said := func(bindings ...policy.Binding) map[string]string {
		w, err := deployments(t, 0)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		e, cursor := engineOn(t, w, policy.EngineOptions{
			Set: set, Bindings: bindings, Limits: policy.Limits{Evaluation: ms, Overruns: 2}, CPU: steps(), Clock: func() time.Time { return now }, Parallelism: 1,
		})
		for i := range 3 {
			mustDo(t, w, deployment("fleet/b", fmt.Sprintf("odd%d", i), map[string]any{"replicas": i, "list": list}))
		}
		apply(t, e, cursor)
		if h, _ := e.State().Health("heavy"); len(h.Quarantines) != 1 || h.Quarantines[0].Member != "fleet/b" {
			t.Fatalf("quarantines %+v", h.Quarantines)
		}
		for _, m := range []string{"fleet/a", "fleet/b"} {
			for i := range 4 {
				mustDo(t, w, deployment(m, fmt.Sprintf("d%d", i), map[string]any{"replicas": 5}))
			}
		}
		apply(t, e, cursor)
		out := map[string]string{}
		for _, m := range []string{"fleet/a", "fleet/b"} {
			for i := range 4 {
				name := fmt.Sprintf("d%d", i)
				v, _ := e.State().Get("heavy", policy.Subject{Ref: aggregate.Ref{Member: m, Kind: "Deployment.apps", Namespace: "shop", Name: name}})
				out[m+"/"+name] = fmt.Sprint(v.State, len(v.Violations))
			}
		}
		return out
	}
	alone, beside := said(heavy), said(heavy, light)
	for at, want := range alone {
		if got := beside[at]; got != want {
			t.Errorf("%s: alone %s, beside a binding of the same package %s", at, want, got)
		}
	}
}
