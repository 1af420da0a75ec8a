package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/explain"
)

// TestExplain_AgreesWithTheState explains every verdict of random fleets: the
// evaluation gives the same again, and what makes a verdict Unknown is among what
// it has read.
func TestExplain_AgreesWithTheState(t *testing.T) {
	t.Parallel()
	sets, err := oracleSets()
	if err != nil {
		t.Fatal(err)
	}
	explained, unknown, violations := 0, 0, 0
	for seed := range uint64(40) {
		t.Logf("seed %d", seed)
		h := small.history(seed, sets)
		first := h.Steps[0]
		w, err := newWorld()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range h.Steps {
			mustDo(t, w, s.Ops...)
		}
		opts := policy.EngineOptions{Set: sets[first.Set].set, Bindings: first.Bindings, Limits: policy.Limits{Evaluation: time.Hour}}
		s, err := policy.Evaluate(t.Context(), opts, w.index.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range first.Bindings {
			n := 0
			for v := range s.Verdicts(b.Name, "") {
				if n++; n > 40 {
					break
				}
				x, err := explain.Explain(t.Context(), policy.EngineOptions{Set: opts.Set}, s, b.Name, v.Subject)
				if err != nil {
					t.Fatalf("seed %d: %s of %s: %v", seed, v.Subject, b.Name, err)
				}
				explained++
				if x.Reevaluated != nil || textOf(x.Verdict) != textOf(v) {
					t.Errorf("seed %d: %s of %s: %+v, then %+v", seed, v.Subject, b.Name, v, x.Reevaluated)
				}
				violations += len(x.Verdict.Violations)
				for _, g := range v.Gaps {
					unknown++
					if !slices.ContainsFunc(x.Reads, func(r explain.Read) bool {
						return slices.ContainsFunc(r.Scopes, func(s explain.Scope) bool {
							return s.Member == g.Member && s.Kind == g.Kind && (s.State == g.State || g.Failure != "") // which is no state of the scope
						})
					}) {
						t.Errorf("seed %d: %s of %s: gap %+v is not among the reads %+v", seed, v.Subject, b.Name, g, x.Reads)
					}
				}
			}
		}
	}
	if explained < 100 || unknown == 0 || violations == 0 {
		t.Errorf("%d explained, %d gaps, %d violations: too few to show anything", explained, unknown, violations)
	}
}

const explainedPolicy = `# METADATA
# title: Hosts
# description: Of one member.
# custom:
#   severity: high
#   kinds: ["Deployment.apps"]
package test.hosts

view.hosts[host] contains true if host := input.object.spec.host

violation contains {"msg": sprintf("also in %s", [claim.ref.member])} if {
	input.object.spec.host != "shared"
	some claim in data.fleet.views["test.hosts"].hosts[input.object.spec.host]
	claim.ref.member != input.ref.member
}
`

// explained is a fleet of two members with one host, and the state of a policy on it.
func explained(t *testing.T) (*policy.Set, *policy.State) {
	t.Helper()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range []string{"f/a", "f/b"} {
		mustDo(t, w,
			op{Do: "join", Member: member},
			op{Do: "reopen", Member: member, Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced},
			deployment(member, "web", map[string]any{"host": "x", "unread": "secret"}))
	}
	mustDo(t, w, op{Do: "status", Member: "f/b", Kind: "Deployment.apps", State: aggregate.Stale})
	set := load(t, explainedPolicy)
	bindings, _ := policy.DefaultBindings(set, nil)
	s, err := policy.Evaluate(t.Context(), policy.EngineOptions{Set: set, Bindings: bindings, Limits: policy.Limits{Evaluation: time.Hour}}, w.index.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	return set, s
}

func TestExplain_ListsReadsAndLines(t *testing.T) {
	t.Parallel()
	set, s := explained(t)
	subject := policy.Subject{Ref: aggregate.Ref{Member: "f/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}
	x, err := explain.Explain(t.Context(), policy.EngineOptions{Set: set}, s, "test.hosts", subject)
	if err != nil {
		t.Fatal(err)
	}
	if x.Verdict.State != policy.Unknown || len(x.Verdict.Violations) != 1 || x.Reevaluated != nil || x.Package != "test.hosts" {
		t.Errorf("%+v", x)
	}
	if len(x.Reads) != 2 || x.Reads[0].Path != "input.object" || x.Reads[1].Path != `data.fleet.views["test.hosts"].hosts.x` {
		t.Fatalf("%+v", x.Reads)
	}
	own, view := x.Reads[0], x.Reads[1]
	if len(own.Objects) != 1 || own.Objects[0].ResourceVersion == "" || own.Objects[0].Revision == 0 || len(own.Scopes) != 1 {
		t.Errorf("%+v", own)
	}
	if !view.Found || view.Bytes == 0 || len(view.Objects) != 2 || len(view.Scopes) != 2 || view.Scopes[0].State != aggregate.Stale || view.Scopes[0].Reason == "" {
		t.Errorf("%+v", view)
	}
	for text, held := range map[string]bool{"some claim in data.fleet.views": true, "claim.ref.member != input.ref.member": true} {
		if !slices.ContainsFunc(x.Lines, func(l explain.Line) bool { return strings.Contains(l.Text, text) && (l.Held > 0) == held }) {
			t.Errorf("%q of %+v", text, x.Lines)
		}
	}
	var input map[string]any
	if err := json.Unmarshal(x.Input, &input); err != nil || strings.Contains(string(x.Input), "secret") || !strings.Contains(string(x.Input), `"host":"x"`) {
		t.Errorf("%v: %s", err, x.Input)
	}
}

func TestExplain_RefusesOtherSubjects(t *testing.T) {
	t.Parallel()
	set, s := explained(t)
	there := policy.Subject{Ref: aggregate.Ref{Member: "f/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}
	for _, subject := range []policy.Subject{
		{Key: "x"},
		{Ref: aggregate.Ref{Member: "f/a"}},
		{Ref: aggregate.Ref{Member: "f/a", Kind: "Deployment.apps", Namespace: "shop", Name: "absent"}},
	} {
		if _, err := explain.Explain(t.Context(), policy.EngineOptions{Set: set}, s, "test.hosts", subject); !errors.Is(err, explain.ErrSubject) {
			t.Errorf("%s: %v", subject, err)
		}
	}
	if _, err := explain.Explain(t.Context(), policy.EngineOptions{Set: set}, s, "absent", there); !errors.Is(err, policy.ErrBinding) {
		t.Errorf("a binding that is not there: %v", err)
	}
	if _, err := explain.Explain(t.Context(), policy.EngineOptions{Set: load(t, explainedPolicy)}, s, "test.hosts", there); !errors.Is(err, policy.ErrBinding) {
		t.Errorf("another set: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := explain.Explain(ctx, policy.EngineOptions{Set: set}, s, "test.hosts", there); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestMeasure_CountsEvaluationsAndReads(t *testing.T) {
	t.Parallel()
	set, s := explained(t)
	c, err := explain.Measure(t.Context(), policy.EngineOptions{Set: set}, s, "test.hosts", 5)
	if err != nil {
		t.Fatal(err)
	}
	if c.Evaluations != 10 || c.Reads != 10 || c.Nanoseconds <= 0 || c.Allocations <= 0 || c.Bytes <= 0 {
		t.Errorf("%+v", c)
	}
	if _, err := explain.Measure(t.Context(), policy.EngineOptions{Set: set}, s, "absent", 1); !errors.Is(err, policy.ErrBinding) {
		t.Errorf("a binding that is not there: %v", err)
	}
}

func TestState_IncompleteYieldsScopesThatHideSubjects(t *testing.T) {
	t.Parallel()
	_, s := explained(t)
	got := slices.Collect(s.Incomplete("test.hosts"))
	if len(got) != 1 || got[0] != (policy.Gap{Member: "f/b", Kind: "Deployment.apps", State: aggregate.Stale}) {
		t.Errorf("%+v", got)
	}
	if got := slices.Collect(s.Incomplete("absent")); got != nil {
		t.Errorf("%+v", got)
	}
}
