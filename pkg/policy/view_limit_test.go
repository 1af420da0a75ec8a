package policy_test

import (
	"fmt"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy"
)

// TestChanges_ReportSupersededBytes counts what only the state before keeps of a view.
func TestChanges_ReportSupersededBytes(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	const objects, least, nodes = 50, oneEntry + oneContributor, 10 << 10
	for i := range objects {
		mustDo(t, w, deployment("fleet/b", fmt.Sprint(i), map[string]any{"app": fmt.Sprintf("app%d", i), "replicas": 1}))
	}
	set := load(t, oracleTexts("budget")...)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set), Limits: policy.Limits{Evaluation: time.Hour}})
	mustDo(t, w, deployment("fleet/a", "x", map[string]any{"app": "shop", "replicas": 9}))
	if n := apply(t, e, cursor).SupersededBytes(); n > nodes {
		t.Errorf("what comes drops %d bytes, more than nodes of trees take", n)
	}
	mustDo(t, w, op{Do: "leave", Member: "fleet/b"})
	if n := apply(t, e, cursor).SupersededBytes(); n < objects*least {
		t.Errorf("a member that leaves drops %d bytes, at least %d", n, objects*least)
	}
}

// TestEngine_ViewOverItsLimitClearsNothingAndRecovers has a member contribute more than a view
// may hold: the keys that there were, and those that came, are Errors. When the member
// is gone, or contributes less, all is as it was.
func TestEngine_ViewOverItsLimitClearsNothingAndRecovers(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int64{"keys are held": 1300, "nor all keys": 290} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := deployments(t, 0)
			if err != nil {
				t.Fatal(err)
			}
			set := load(t, oracleTexts("budget")...)
			mustDo(t, w, deployment("fleet/a", "x", map[string]any{"app": "shop", "replicas": 9}))
			e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set), Limits: policy.Limits{Evaluation: time.Hour, View: limit}})
			whole := policy.Counts{Known: 1, Violations: 1}
			if got := e.State().Total("oracle.budget"); got != whole {
				t.Fatalf("before: %+v", got)
			}
			flood := func() {
				t.Helper()
				for i := range 5 {
					mustDo(t, w, deployment("fleet/b", fmt.Sprint(i), map[string]any{"app": fmt.Sprintf("app%d", i), "replicas": 1}))
				}
				for c := range apply(t, e, cursor).All() {
					if c.After == nil || c.After.State != policy.Error {
						t.Errorf("%+v becomes %+v", c.Before, c.After)
					}
				}
				got := e.State().Total("oracle.budget")
				if want := (policy.Counts{Errors: 6}); limit == 1300 && got != want || got.Errors == 0 || got.Errors != got.Known+got.Errors {
					t.Errorf("over: %+v", got)
				}
				if h, _ := e.State().Health("oracle.budget"); h.Views == "" {
					t.Error("the health says nothing")
				}
			}
			flood()
			mustDo(t, w, deployment("fleet/a", "x", map[string]any{"app": "shop", "replicas": 8})) // meanwhile
			apply(t, e, cursor)
			mustDo(t, w, op{Do: "leave", Member: "fleet/b"})
			apply(t, e, cursor)
			if got := e.State().Total("oracle.budget"); got != whole {
				t.Errorf("when the member is gone: %+v", got)
			}
			if h, _ := e.State().Health("oracle.budget"); h.Views != "" {
				t.Errorf("it still says %q", h.Views)
			}
			if v, ok := e.State().Get("oracle.budget", policy.Subject{Key: "shop"}); !ok || len(v.Violations) != 1 || v.Violations[0].Msg != "shop has 8 replicas in 1 of 1 members" {
				t.Errorf("%+v", v)
			}
		})
	}
}
