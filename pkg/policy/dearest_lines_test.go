package policy_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// dearText has a line, 8, that takes much more than its others.
const dearText = `# METADATA
# title: Dear
# custom: {severity: low, kinds: ["Deployment.apps"]}
package dear

violation contains {"msg": "dear"} if {
	input.object.spec.replicas > 0
	count([1 | some x in numbers.range(1, 40); some y in numbers.range(1, 40); x * y == input.object.spec.replicas]) > 50
}

violation contains {"msg": input.ref.name} if small

small if input.object.spec.replicas == 1
`

// dearWorld has Deployments.
func dearWorld(t testing.TB, n int) *world {
	t.Helper()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, w, op{Do: "join", Member: "eu"}, op{Do: "reopen", Member: "eu", Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced})
	for i := range n {
		mustDo(t, w, deployment("eu", fmt.Sprintf("d%d", i), map[string]any{"replicas": i%3 + 1}))
	}
	return w
}

func TestState_DearestLinesAreThoseThatTakeMost(t *testing.T) {
	set := load(t, dearText)
	w := dearWorld(t, 200)
	bindings := []policy.Binding{{Name: "dear", Package: "dear"}}
	e, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings})
	lines, samples := e.State().DearestLines("dear", 10)
	if samples == 0 || len(lines) < 2 || lines[0].File != "p0.rego" || lines[0].Line != 8 || lines[0].Rule != "violation" || lines[0].Share < 0.8 {
		t.Fatalf("%+v of %d samples", lines, samples)
	}
	sum := 0.0
	for i, l := range lines {
		if sum += l.Share; i > 0 && l.Share > lines[i-1].Share {
			t.Errorf("line %d takes more than the one before: %+v", i, lines)
		}
	}
	if sum < 0.99 || sum > 1.01 {
		t.Errorf("the shares of all add up to %v", sum)
	}
	if top, _ := e.State().DearestLines("dear", 1); len(top) != 1 || top[0] != lines[0] {
		t.Errorf("the dearest one is %+v", top)
	}
	if lines, samples := e.State().DearestLines("nobody", 10); lines != nil || samples != 0 {
		t.Errorf("of no policy: %+v of %d", lines, samples)
	}

	// Policies are loaded again with each commit of any source: what is known of lines stays where these do.
	configure := func(texts ...string) int {
		t.Helper()
		if _, err := e.Configure(t.Context(), load(t, texts...), bindings); err != nil {
			t.Fatal(err)
		}
		_, samples := e.State().DearestLines("dear", 10)
		return samples
	}
	if got := configure(dearText, oracleTexts("unique_host")[0]); got < samples {
		t.Errorf("%d samples after a commit of another file, %d before", got, samples)
	}
	if got := configure("# All lines are one below.\n"+dearText, oracleTexts("unique_host")[0]); got != 0 {
		t.Errorf("%d samples of lines that have moved", got)
	}
}

// TestState_SamplesChangeNoVerdict: an engine that samples says what an evaluation without one says.
func TestState_SamplesChangeNoVerdict(t *testing.T) {
	set := load(t, dearText)
	w := dearWorld(t, 300)
	opts := policy.EngineOptions{Set: set, Bindings: []policy.Binding{{Name: "dear", Package: "dear"}}}
	e, _ := engineOn(t, w, opts)
	if _, samples := e.State().DearestLines("dear", 1); samples == 0 {
		t.Fatal("nothing was sampled")
	}
	h, _ := e.State().Health("dear")
	if h.Evaluations != 300 {
		t.Errorf("%d evaluations of 300 objects", h.Evaluations)
	}
	found := 0
	for v := range e.State().Findings("dear", "") {
		want := policy.Known
		if v.State != want || len(v.Violations) != 1 || v.Violations[0].Msg != v.Subject.Ref.Name {
			t.Errorf("%+v", v)
		}
		found++
	}
	if found != 100 {
		t.Errorf("%d findings, want 100", found)
	}
}
