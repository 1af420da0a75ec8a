package policy_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

const header = "# METADATA\n# title: Hostile\n# custom: {severity: low, kinds: [\"Deployment.apps\"]%s}\npackage hostile.%s\n\n"

// hostile are policies that want more than their share, and what is said of them.
// ms is a budget that what does not end soon overruns: by steps, not by the machine's
// time.
const ms = 50 * time.Millisecond

// steps is a CPU that uses a millisecond whenever somebody asks it, which an
// evaluation does every 64 steps.
func steps() func() time.Duration {
	var n atomic.Int64
	return func() time.Duration { return time.Duration(n.Add(1)) * time.Millisecond }
}

var hostile = []struct {
	name, custom, rules, wants string
	budget                     time.Duration
}{
	{"comprehension", "", `violation contains {"msg": "never"} if {
	xs := numbers.range(1, 100000)
	count([1 | some x in xs; some y in xs; x * y == input.object.spec.replicas]) < 0
}`, "time budget", ms},
	{"result", "", `violation contains {"msg": "large", "details": d} if {
	line := sprintf("%01000d", [1])
	d := [concat("", [line, format_int(i, 10)]) | some i in numbers.range(1, 10000)]
}`, "larger than", time.Minute},
	{"many", "", `violation contains {"msg": sprintf("%d", [i])} if some i in numbers.range(1, 2000)`, "more than 1000", time.Minute},
	{"range", "", `violation contains {"msg": "x"} if count(numbers.range(0, 1000000000)) > 0`, "range", ms},
	{"product", "", `violation contains {"msg": "x"} if {
	s := concat("", [sprintf("%01000d", [i]) | some i in numbers.range(1, 100)])
	t := replace(s, "0", s)
	t != ""
}`, "replace", 10 * ms},
	{"digits", "", `violation contains {"msg": "x"} if {
	a := to_number(concat("", ["1e", "999999999"]))
	a * a > 0
}`, "", ms},
	{"regex", "", `violation contains {"msg": "x"} if regex.match(concat("", ["(", concat("|", [sprintf("a{%d}{1000}", [i]) | some i in numbers.range(1, 1000)]), ")"]), "aaaa")`, "", ms},
	{"composite", "", `view.keys[key] contains true if key := [input.ref.name, input.object.spec.replicas]

violation contains {"msg": "x"} if data.fleet.views["hostile.composite"].keys.a`, "is not a string", ms},
	{"deep", "", `view.next[key] contains value if {
	key := input.ref.name
	value := input.ref.name
}

hop(x) := y if {
	some e in data.fleet.views["hostile.deep"].next[x]
	y := e.value
}

violation contains {"msg": "x"} if {
	some a in numbers.range(1, 1000)
	some b in numbers.range(1, 1000)
	hop(hop(hop(hop(input.ref.name)))) == sprintf("%d %d", [a, b])
}`, "time budget", ms},
	{"oneerror", "", `violation contains {"msg": "fine"}

violation contains {"msg": "broken"} if 1 / (input.object.spec.replicas - input.object.spec.replicas) > 0`, "divide by zero", ms},
	{"wideview", "", `view.all[key] contains value if {
	some i in numbers.range(1, 2000)
	key := sprintf("%d", [i])
	value := sprintf("%0200d", [i])
}

violation contains {"msg": "x"} if data.fleet.views["hostile.wideview"].all["1"]`, "contributes more than", time.Minute},
	{"remedy", ", remedies: [{action: delete, kind: Pod}]", `violation contains {"msg": "x", "remedy": {"action": "delete"}}`, "does not declare", ms},
}

func hostileSet(t *testing.T) *policy.Set {
	t.Helper()
	src := policy.Source{}
	for _, h := range hostile {
		src.Files = append(src.Files, policy.File{Path: h.name + ".rego", Data: []byte(fmt.Sprintf(header, h.custom, h.name) + h.rules + "\n")})
	}
	src.Files = append(src.Files, policy.File{Path: "good.rego", Data: []byte(fmt.Sprintf(header, "", "good") + `violation contains {"msg": "none"} if input.object.spec.replicas == 0

violation contains {"msg": "other"} if {
	some member, other in data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name]
	other.spec.replicas != input.object.spec.replicas
}
`)})
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// deployments is an index of n Deployments in two members.
func deployments(t testing.TB, n int) (*world, error) {
	t.Helper()
	w, err := newWorld()
	if err != nil {
		return nil, err
	}
	for _, m := range []string{"fleet/a", "fleet/b"} {
		ops := []op{{Do: "join", Member: m, Version: "v1.36.3"}}
		for _, kind := range worldKinds {
			ops = append(ops, op{Do: "reopen", Member: m, Kind: kind, Version: heldVersion(kind), State: aggregate.Synced})
		}
		for i := range n {
			ops = append(ops, op{
				Do: "put", Member: m, Kind: "Deployment.apps", NS: "shop", Name: fmt.Sprintf("d%d", i),
				Object: map[string]any{"spec": map[string]any{"replicas": i % 3, "image": "web:1"}},
			})
		}
		for _, o := range ops {
			if err := w.do(o); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

func bindingsOf(set *policy.Set, packages ...string) []policy.Binding {
	var out []policy.Binding
	for _, p := range set.Packages {
		if len(packages) == 0 || slices.Contains(packages, p.Name) {
			out = append(out, policy.Binding{Name: p.Name, Package: p.Name})
		}
	}
	return out
}

// TestEngine_BoundsAndNamesHostilePolicies gives each hostile policy a fleet and looks at
// what is said of it, and at what is said of the policy beside it.
func TestEngine_BoundsAndNamesHostilePolicies(t *testing.T) {
	t.Parallel()
	set := hostileSet(t)
	w, err := deployments(t, 12)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := policy.Evaluate(t.Context(), policy.EngineOptions{Set: set, Bindings: bindingsOf(set, "hostile.good")}, w.index.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // of a machine that does much else
			defer cancel()
			s, err := policy.Evaluate(ctx, policy.EngineOptions{
				Set: set, Bindings: bindingsOf(set, "hostile.good", "hostile."+h.name), Limits: policy.Limits{Evaluation: h.budget}, CPU: steps(), Parallelism: 1,
			}, w.index.Snapshot())
			if err != nil {
				t.Fatal(err)
			}
			name := "hostile." + h.name
			want := policy.Counts{Errors: 24}
			if h.name == "composite" || h.name == "wideview" { // no object can contribute
				want = policy.Counts{Unknown: 24}
			}
			if total := s.Total(name); total != want {
				t.Errorf("verdicts: %+v, want %+v", total, want)
			}
			health, _ := s.Health(name)
			said := health.Problem()
			for v := range s.Findings(name, "") {
				said += "\n" + v.Message
			}
			if !strings.Contains(said, h.wants) {
				t.Errorf("it says %q, want %q", said, h.wants)
			}
			if slow := health.Overruns > 0; slow && health.Overruns >= 22 && len(health.Quarantines) == 0 {
				t.Errorf("%d overruns and no quarantine", health.Overruns)
			}
			if got, want := s.Total("hostile.good"), alone.Total("hostile.good"); got != want {
				t.Errorf("the other binding has %+v, alone it has %+v", got, want)
			}
		})
	}
}

// TestQuarantine_CountsTimeWithoutAResult has a policy that stays within its
// budget and gives more than it may, each time: it is quarantined as soon as that
// has taken as much time as two overruns. The same policy is let be where its answer
// is taken, and so is one that fails at once.
func TestQuarantine_CountsTimeWithoutAResult(t *testing.T) {
	t.Parallel()
	set := hostileSet(t)
	w, err := deployments(t, 12)
	if err != nil {
		t.Fatal(err)
	}
	health := func(name string, l policy.Limits) policy.Health {
		t.Helper()
		s, err := policy.Evaluate(t.Context(), policy.EngineOptions{
			Set: set, Bindings: bindingsOf(set, name), Limits: l, CPU: steps(), Parallelism: 1,
		}, w.index.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		h, ok := s.Health(name)
		if !ok {
			t.Fatalf("no binding %s", name)
		}
		if h.Overruns > 0 {
			t.Errorf("%s overruns its budget: %+v", name, h)
		}
		return h
	}
	limits := policy.Limits{Evaluation: 400 * time.Millisecond, Overruns: 2}
	h := health("hostile.result", limits)
	if h.Evaluations < 3 || h.Evaluations > 24 || len(h.Quarantines) != 2 || !strings.Contains(h.Problem(), "larger than 1048576 bytes") {
		t.Errorf("what is too large each time: %+v, want a quarantine after some evaluations", h)
	}
	if h := health("hostile.oneerror", limits); len(h.Quarantines) > 0 || h.Errors != 24 {
		t.Errorf("what fails at once: %+v", h)
	}
	limits.Result = 64 << 20
	if h := health("hostile.result", limits); len(h.Quarantines) > 0 || h.Errors > 0 || h.Evaluations != 24 {
		t.Errorf("what has an answer: %+v", h)
	}
}

// TestQuarantine_EndsWithANewPolicy configures a new version of the policy.
func TestQuarantine_EndsWithANewPolicy(t *testing.T) {
	t.Parallel()
	set := hostileSet(t)
	w, err := deployments(t, 12)
	if err != nil {
		t.Fatal(err)
	}
	e, err := policy.NewEngine(policy.EngineOptions{
		Set: set, Bindings: bindingsOf(set, "hostile.comprehension"), Limits: policy.Limits{Evaluation: ms, Overruns: 2}, CPU: steps(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(t.Context(), w.index.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	if h, _ := e.State().Health("hostile.comprehension"); len(h.Quarantines) == 0 || h.Evaluations > 4 {
		t.Fatalf("health %+v, want a quarantine after two overruns", h)
	}
	src := policy.Source{Files: []policy.File{{Path: "c.rego", Data: []byte(fmt.Sprintf(header, "", "comprehension") + `violation contains {"msg": "none"} if input.object.spec.replicas == 0` + "\n")}}}
	fixed, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Configure(t.Context(), fixed, bindingsOf(fixed)); err != nil {
		t.Fatal(err)
	}
	if h, _ := e.State().Health("hostile.comprehension"); len(h.Quarantines) > 0 {
		t.Errorf("still quarantined: %+v", h)
	}
	if got := e.State().Total("hostile.comprehension"); got != (policy.Counts{Known: 24, Violations: 8}) {
		t.Errorf("verdicts: %+v", got)
	}
}

// TestEngine_InterruptedCallRequiresReset ends the context in the middle.
func TestEngine_InterruptedCallRequiresReset(t *testing.T) {
	t.Parallel()
	set := hostileSet(t)
	w, err := deployments(t, 12)
	if err != nil {
		t.Fatal(err)
	}
	e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindingsOf(set, "hostile.good")})
	if err != nil {
		t.Fatal(err)
	}
	cursor := w.index.Cursor(nil)
	batch, _ := cursor.Poll()
	if _, err := e.Apply(t.Context(), batch, nil); !errors.Is(err, policy.ErrReset) {
		t.Fatalf("Apply before Reset: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Reset(over, w.index.Snapshot(), nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("Reset: %v", err)
	}
	if e.State() != nil {
		t.Error("an interrupted call publishes a state")
	}
	if _, err := e.Configure(t.Context(), set, nil); !errors.Is(err, policy.ErrReset) {
		t.Errorf("Configure: %v, want ErrReset", err)
	}
	if _, err := e.Reset(t.Context(), w.index.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Apply(t.Context(), batch, nil); !errors.Is(err, policy.ErrReset) {
		t.Errorf("Apply of a batch that does not follow: %v, want ErrReset", err)
	}
}

// TestEngine_BudgetIsIndependentOfLoad evaluates beside goroutines that leave an
// evaluation a small part of the processors: it takes many times its budget, and
// does not use it.
func TestEngine_BudgetIsIndependentOfLoad(t *testing.T) {
	src := policy.Source{Files: []policy.File{{Path: "slow.rego", Data: []byte(fmt.Sprintf(header, "", "slow") + `violation contains {"msg": "never"} if {
	xs := numbers.range(1, 400)
	count([1 | some x in xs; some y in xs; x * y == input.object.spec.replicas]) < 0
}
`)}}}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := deployments(t, 1)
	if err != nil {
		t.Fatal(err)
	}
	evaluate := func(budget time.Duration) (policy.Health, time.Duration) {
		t.Helper()
		s, err := policy.Evaluate(t.Context(), policy.EngineOptions{
			Set: set, Bindings: bindingsOf(set), Limits: policy.Limits{Evaluation: budget}, Parallelism: 1,
		}, w.index.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		h, _ := s.Health("hostile.slow")
		return h, time.Duration(h.Nanoseconds)
	}
	_, alone := evaluate(time.Minute)
	budget := 2 * alone // of either of its two evaluations: four times what one takes

	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 24 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() { //nolint:revive // It shall be busy.
			}
		})
	}
	h, took := evaluate(budget)
	stop.Store(true)
	wg.Wait()
	t.Logf("alone %v, beside others %v, of a budget of %v each", alone, took, budget)
	if h.Overruns > 0 {
		t.Errorf("%d overruns", h.Overruns)
	}
	if h, _ := evaluate(alone / 20); h.Overruns == 0 {
		t.Error("a tenth of what they need is enough")
	}
}
