package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(t testing.TB, rule string) *policy.Set {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(`# METADATA
# title: Replicas
# custom: {severity: high, kinds: ["Deployment.apps"]}
package replicas

violation contains {"msg": "too few"} if ` + rule + "\n")}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// scopeOf joins a member with one scope.
func scopeOf(t testing.TB, index *aggregate.Index) *aggregate.Scope {
	t.Helper()
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScope("fleet/a", "Deployment.apps", "apps/v1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	return scope
}

func put(t testing.TB, scope *aggregate.Scope, name string, replicas int) {
	t.Helper()
	scope.Upsert(scope.Item(&aggregate.Record{
		Namespace: "shop", Name: name, UID: name, ResourceVersion: fmt.Sprint(replicas),
		Body: fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":"shop"},"spec":{"replicas":%d}}`, name, replicas),
	}))
	if _, err := scope.Commit(); err != nil {
		t.Fatal(err)
	}
}

// startLoop is a loop that runs until the test ends.
func startLoop(t testing.TB, opts enforce.Options) *enforce.Loop {
	t.Helper()
	loop, err := enforce.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := loop.Configure(t.Context(), opts.Set, nil); !errors.Is(err, enforce.ErrStopped) && !errors.Is(err, context.Canceled) {
			t.Errorf("Configure of a loop that has ended: %v", err)
		}
	})
	return loop
}

func newIndex(t testing.TB) *aggregate.Index {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func TestLoop_EvaluatesChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		put(t, scope, "web", 1)
		set := load(t, "input.object.spec.replicas < 2")
		bindings := []policy.Binding{{Name: "b", Package: "replicas"}}
		registry := prometheus.NewRegistry()
		var reported []string
		loop := startLoop(t, enforce.Options{
			Index: index, Set: set, Bindings: bindings, Metrics: registry,
			Changed: func(c *policy.Changes, _ *aggregate.Batch) {
				for d := range c.All() {
					reported = append(reported, fmt.Sprint(d.After.Subject.Ref.Name, len(d.After.Violations)))
				}
			},
		})
		total := func() policy.Counts {
			synctest.Wait()
			if s := loop.State(); s.Snapshot.Revision() != index.Snapshot().Revision() {
				t.Errorf("the state is of revision %d, the index at %d", s.Snapshot.Revision(), index.Snapshot().Revision())
			}
			return loop.State().Total("b")
		}
		if got := total(); got != (policy.Counts{Known: 1, Violations: 1}) {
			t.Errorf("at first: %+v", got)
		}
		put(t, scope, "web", 2)
		put(t, scope, "db", 1)
		if got := total(); got != (policy.Counts{Known: 2, Violations: 1}) {
			t.Errorf("after changes: %+v", got)
		}
		if got := strings.Join(reported, " "); !strings.HasPrefix(got, "web1") || !strings.Contains(got, "web0") || !strings.Contains(got, "db1") {
			t.Errorf("reported %q", got)
		}
		err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP federator_member_violations Violations, by member and severity; exempt ones, and those of keys of views, not included. Severities without any have no series.
# TYPE federator_member_violations gauge
federator_member_violations{member="fleet/a",severity="high"} 1
# HELP federator_policy_member_violations Violations, by policy, member and severity, of the 20 members with the most.
# TYPE federator_policy_member_violations gauge
federator_policy_member_violations{member="fleet/a",policy="b",severity="high"} 1
# HELP federator_policy_violations Violations, by policy and severity; exempt ones not included. Label binding is deprecated: use policy, which has the same value.
# TYPE federator_policy_violations gauge
federator_policy_violations{binding="b",policy="b",severity="high"} 1
# HELP federator_policy_synced 1 once every scope that policies read has been listed or has timed out.
# TYPE federator_policy_synced gauge
federator_policy_synced 1
# HELP federator_policy_verdicts Verdicts, by policy and state. Label binding is deprecated: use policy, which has the same value.
# TYPE federator_policy_verdicts gauge
federator_policy_verdicts{binding="b",policy="b",state="Error"} 0
federator_policy_verdicts{binding="b",policy="b",state="Known"} 2
federator_policy_verdicts{binding="b",policy="b",state="Unknown"} 0
`), "federator_member_violations", "federator_policy_member_violations", "federator_policy_violations", "federator_policy_verdicts", "federator_policy_synced")
		if err != nil {
			t.Error(err)
		}

		if err := loop.Configure(t.Context(), load(t, "input.object.spec.replicas < 3"), bindings); err != nil {
			t.Fatal(err)
		}
		if got := loop.State().Total("b"); got.Violations != 2 {
			t.Errorf("after another policy: %+v", got)
		}
		if err := loop.Configure(t.Context(), set, []policy.Binding{{Name: "b", Package: "none"}}); !errors.Is(err, policy.ErrBinding) {
			t.Errorf("a binding of no package: %v", err)
		}
		if got := total(); got.Violations != 2 {
			t.Errorf("after a mistake: %+v, want what was before", got)
		}
	})
}

func TestLoop_ExpiresExemptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		loop := startLoop(t, enforce.Options{
			Index: index, Set: load(t, "input.object.spec.replicas < 2"),
			Bindings: []policy.Binding{{Name: "b", Package: "replicas", Exemptions: []policy.Exemption{
				{Reason: "migration", Expires: time.Now().Add(time.Hour)},
				{Reason: "later", Names: []string{"web"}, Expires: time.Now().Add(30 * time.Hour)},
			}}},
		})
		for _, want := range []struct {
			after          time.Duration
			exempt, reason string
		}{{0, "migration", ""}, {2 * time.Hour, "later", ""}, {31 * time.Hour, "", ""}} {
			time.Sleep(want.after) // of the bubble's clock
			synctest.Wait()
			for v := range loop.State().Findings("b", "") {
				if got := v.Violations[0].Exempt; got != want.exempt {
					t.Errorf("after %v: exempt for %q, want %q", want.after, got, want.exempt)
				}
			}
		}
		if got := loop.State().Total("b"); got.Violations != 1 || got.Exempt != 0 {
			t.Errorf("at last: %+v", got)
		}
	})
}

// TestLoop_ConfiguresOnBusyIndex: when there is always another change, policies are
// exchanged, exemptions expire and the loop ends all the same.
func TestLoop_ConfiguresOnBusyIndex(t *testing.T) {
	index := newIndex(t)
	scope := scopeOf(t, index)
	put(t, scope, "web", 1)
	n := 0
	ctx, cancel := context.WithCancel(t.Context())
	expires := time.Now().Add(50 * time.Millisecond)
	loop, err := enforce.New(enforce.Options{
		Index: index, Set: load(t, "input.object.spec.replicas < 2"),
		Bindings: []policy.Binding{{Name: "b", Package: "replicas", Exemptions: []policy.Exemption{{Reason: "soon over", Expires: expires}}}},
		Changed: func(*policy.Changes, *aggregate.Batch) { // each batch leads to another
			n++
			put(t, scope, "busy", 10+n)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	defer func() {
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the loop does not end")
		}
	}()
	patient, enough := context.WithTimeout(ctx, 20*time.Second)
	defer enough()
	for expired := false; !expired; {
		if patient.Err() != nil {
			t.Fatal("an exemption does not expire")
		}
		if p := loop.Point(); p != nil {
			for v := range p.State().Findings("b", "") {
				expired = v.Violations[0].Exempt == ""
			}
		}
		runtime.Gosched()
	}
	if err := loop.Configure(patient, load(t, "input.object.spec.replicas < 2000000"), []policy.Binding{{Name: "b", Package: "replicas"}}); err != nil {
		t.Errorf("policies are not exchanged: %v", err)
	}
	if got := loop.State().Total("b").Violations; got != 2 {
		t.Errorf("%d violations of the new policies, want 2", got)
	}
}

func TestNew_RefusesInvalidOptions(t *testing.T) {
	set := load(t, "true")
	for name, opts := range map[string]enforce.Options{
		"index":   {Set: set},
		"set":     {Index: newIndex(t)},
		"binding": {Index: newIndex(t), Set: set, Bindings: []policy.Binding{{Name: "x", Package: "none"}}},
		"limits":  {Index: newIndex(t), Set: set, Limits: policy.Limits{View: -1}},
	} {
		if _, err := enforce.New(opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestLoop_ConfigureWaitsForAReset: an evaluation fails while policies are replaced, so that
// everything is evaluated again.
func TestLoop_ConfigureWaitsForAReset(t *testing.T) {
	index := newIndex(t)
	put(t, scopeOf(t, index), "web", 1)
	var failed atomic.Bool
	clock := func() time.Time {
		// The engine reads the clock when an evaluation overruns.
		if strings.Contains(string(debug.Stack()), "/quarantine.") && failed.CompareAndSwap(false, true) {
			panic("no clock")
		}
		return time.Now()
	}
	loop := startLoop(t, enforce.Options{
		Index: index, Set: load(t, "input.object.spec.replicas < 0"), Bindings: []policy.Binding{{Name: "b", Package: "replicas"}},
		Limits: policy.Limits{Overruns: 1}, Clock: clock,
	})
	slow := load(t, "count([x | some x in numbers.range(1, 100000); some y in numbers.range(1, 100000); x * y < 0]) == 0")
	if err := loop.Configure(t.Context(), slow, []policy.Binding{{Name: "b", Package: "replicas", Mode: policy.DryRun}}); err != nil {
		t.Fatal(err)
	}
	for b := range loop.State().Bindings() {
		if b.Mode != policy.DryRun {
			t.Errorf("Configure has returned before the verdicts of the new policies are there: binding %+v", b)
		}
	}
	if !failed.Load() {
		t.Error("nothing has failed")
	}
}
