package enforce_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

var everything = []enforce.AllowedAction{{Verbs: []string{"patch"}, Kinds: []string{"*"}}}

// TestCorrector_SpecOverCeilingIsObserved, whatever exceeds it: the reason names field, value
// and ceiling.
func TestCorrector_SpecOverCeilingIsObserved(t *testing.T) {
	const fixer, other = "system:serviceaccount:platform:fixer", "system:serviceaccount:platform:other"
	type spec = enforce.EnforcementSpec
	type ceiling = enforce.Ceiling
	limits := func(l remediate.Limits) *spec { return &spec{Limits: l} }
	bounds := func(l remediate.Limits) *ceiling { return &ceiling{Limits: l} }
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		a, c, _ := startCorrector(t, index, bindingB)
		for _, x := range []struct {
			name    string
			spec    *spec
			ceiling *ceiling
			why     string // "": it is within the ceiling
		}{
			{"nothing", &spec{}, &ceiling{}, ""},
			{"force", &spec{Force: true}, &ceiling{}, `spec.force is true, and the ceiling of source "git" has force false`},
			{"allowed force", &spec{Force: true}, &ceiling{Force: true}, ""},
			{"a user", &spec{ActAs: fixer}, &ceiling{}, `spec.actAs is "` + fixer + `", and the ceiling of source "git" has actAs []`},
			{"another user", &spec{ActAs: fixer}, &ceiling{ActAs: []string{other, ""}}, `spec.actAs is "` + fixer + `", and the ceiling of source "git" has actAs ["` + other + `" ""]`},
			{"an allowed user", &spec{ActAs: fixer}, &ceiling{ActAs: []string{other, fixer}}, ""},
			{"itself", &spec{}, &ceiling{ActAs: []string{other}}, `spec.actAs is not set, and the ceiling of source "git" has actAs ["` + other + `"]`},
			{"allowed itself", &spec{}, &ceiling{ActAs: []string{other, ""}}, ""},
			{"GitOps", &spec{OverrideGitOps: true}, &ceiling{}, `spec.gitops is Override, and the ceiling of source "git" has gitops Respect`},
			{"allowed GitOps", &spec{OverrideGitOps: true}, &ceiling{OverrideGitOps: true}, ""},
			{"opt-out", &spec{IgnoreOptOut: true}, &ceiling{}, `spec.optOut is None, and the ceiling of source "git" has optOut Honor`},
			{"allowed opt-out", &spec{IgnoreOptOut: true}, &ceiling{IgnoreOptOut: true}, ""},
			{"a larger limit", limits(remediate.Limits{Policy: remediate.Limit{Count: 6}}), bounds(remediate.Limits{Policy: remediate.Limit{Count: 5}}), `spec.limits.maxAffected.policy.count is 6, and the ceiling of source "git" has limits.policy.count 5`},
			{"the same limit", limits(remediate.Limits{Policy: remediate.Limit{Count: 5, Percent: 50}}), bounds(remediate.Limits{Policy: remediate.Limit{Count: 5}}), ""},
			{"no limit", limits(remediate.Limits{Policy: remediate.Limit{Count: 1}}), bounds(remediate.Limits{Member: remediate.Limit{Percent: 5}}), `spec.limits.maxAffected.member.percent is not set, and the ceiling of source "git" has limits.member.percent 5`},
			{"another unit", limits(remediate.Limits{Fleet: remediate.Limit{Percent: 1}}), bounds(remediate.Limits{Fleet: remediate.Limit{Count: 100}}), `spec.limits.maxAffected.fleet.count is not set, and the ceiling of source "git" has limits.fleet.count 100`},
			{"a shorter window", limits(remediate.Limits{Window: time.Minute, Policy: remediate.Limit{Count: 1}}), bounds(remediate.Limits{Policy: remediate.Limit{Count: 1}}), `spec.limits.window is 1m0s, and the ceiling of source "git" has limits.window 1h0m0s`},
			{"a longer window", limits(remediate.Limits{Window: 2 * time.Hour, Policy: remediate.Limit{Count: 1}}), bounds(remediate.Limits{Policy: remediate.Limit{Count: 1}}), ""},
			{"no rate", limits(remediate.Limits{}), bounds(remediate.Limits{PerMinute: 3}), `spec.limits.actionsPerMinute is not set, and the ceiling of source "git" has limits.actionsPerMinute 3`},
			{"a rate", limits(remediate.Limits{PerMinute: 3, Window: time.Minute}), bounds(remediate.Limits{PerMinute: 3}), ""},
		} {
			x.spec.Mode, x.spec.Source = policy.Enforce, "git"
			x.ceiling.Mode, x.ceiling.Actions = policy.Enforce, everything
			x.spec.Ceiling = x.ceiling
			setSpec(t, c, *x.spec)
			s := c.Status("b")
			if s.ModeReason != x.why || (s.Mode == policy.Enforce) != (x.why == "") {
				t.Errorf("%s: %s, %q; want %q", x.name, s.Mode, s.ModeReason, x.why)
			}
			want := "patch web@1"
			if x.why != "" {
				want = "nothing"
			}
			expect(t, a, x.name, want)
		}
	})
}

// TestCorrector_LowerCeilingWithdrawsAtOnce: when SetSpecs returns, nothing is wanted any more.
func TestCorrector_LowerCeilingWithdrawsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		a, c, _ := startCorrector(t, index, bindingB)
		spec := enforce.EnforcementSpec{Mode: policy.Enforce, Source: "git", Force: true, Ceiling: &enforce.Ceiling{Mode: policy.Enforce, Actions: everything, Force: true, Version: "1"}}
		setSpec(t, c, spec)
		expect(t, a, "allowed", "patch web@1")
		if got := a.policies["b"].spec.Ceiling; got != "1" {
			t.Errorf("ceiling %q", got)
		}
		for name, lower := range map[string]enforce.Ceiling{
			"force":      {Mode: policy.Enforce, Actions: everything, Version: "2"},
			"namespaces": {Mode: policy.Enforce, Actions: everything, Force: true, Namespaces: []string{"depot"}, Version: "2"},
			"waves":      {Mode: policy.Enforce, Actions: everything, Force: true, Waves: []enforce.Wave{{Name: "test", Members: policy.MemberSelector{Names: []string{"fleet/test"}}}}, Version: "2"},
		} {
			setSpec(t, c, spec)
			now := spec
			now.Ceiling = &lower
			if err := c.SetSpecs(map[string]enforce.EnforcementSpec{"b": now}); err != nil {
				t.Fatal(err)
			}
			if w := a.policies["b"]; len(w.intents) > 0 { // nothing has run since
				t.Errorf("%s: still wanted: %+v", name, w.intents)
			}
			if s := c.Status("b"); s.ModeReason+s.OverCeilingReason == "" {
				t.Errorf("%s: %+v", name, s)
			}
		}
	})
}

// TestCorrector_OwnWavesAreWithinThoseOfTheCeiling, and pass the gates of both.
func TestCorrector_OwnWavesAreWithinThoseOfTheCeiling(t *testing.T) {
	members := func(names ...string) policy.MemberSelector { return policy.MemberSelector{Names: names} }
	ceiling := []enforce.Wave{
		{Name: "test", Members: members("fleet/t*"), Soak: time.Hour, Require: v1alpha1.RequireHealthy, Timeout: 5 * time.Minute, Effect: &remediate.EffectGate{Policies: []string{"slo"}}},
		{Name: "prod", Members: members("fleet/p*"), Require: v1alpha1.RequireNotDegraded, Timeout: time.Hour, MaxFailed: 5},
	}
	own := []enforce.Wave{
		{Name: "canary", Members: members("fleet/p1"), Soak: 10 * time.Minute, Require: v1alpha1.RequireNothing, Timeout: 10 * time.Minute, MaxFailed: 10},
		{Name: "rest", Members: members("fleet/t1", "fleet/p*", "fleet/x"), Soak: time.Minute, Require: v1alpha1.RequireHealthy, Timeout: 10 * time.Minute, MaxFailed: 1},
	}
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		for _, name := range []string{"t1", "t2", "p1", "p2", "x"} {
			if err := index.PutMember(aggregate.Member{Name: "fleet/" + name, UID: name}); err != nil {
				t.Fatal(err)
			}
		}
		a, c, _ := startCorrector(t, index, bindingB)
		for name, x := range map[string]struct {
			own  []enforce.Wave
			want []string
		}{
			"none of its own": {nil, []string{
				"test [fleet/t1 fleet/t2] soak 1h0m0s Healthy 5m0s 0% [slo] []", "prod [fleet/p1 fleet/p2] soak 0s NotDegraded 1h0m0s 5% [] []",
			}},
			"its own": {own, []string{
				"test/canary [] soak 0s Healthy 5m0s 0% [] [slo fleet/t1]", "test/rest [fleet/t1] soak 1h0m0s Healthy 5m0s 0% [] [slo fleet/t1]",
				"prod/canary [fleet/p1] soak 10m0s NotDegraded 10m0s 5% [] []", "prod/rest [fleet/p2] soak 1m0s Healthy 10m0s 1% [] []",
			}},
		} {
			setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Source: "git", Waves: x.own, Ceiling: &enforce.Ceiling{Mode: policy.Enforce, Actions: everything, Waves: ceiling}})
			a.describe("b") // fleet/a is in no wave
			if s := c.Status("b"); s.OverCeiling != 1 || s.OverCeilingReason != `source "git" may not write to fleet/a: no wave of its ceiling selects it` {
				t.Errorf("%s: %+v", name, s)
			}
			var got []string
			for _, w := range a.policies["b"].spec.Waves {
				got = append(got, describeWave(&w))
			}
			if !slices.Equal(got, x.want) {
				t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(x.want, "\n"))
			}
		}
	})
}

func describeWave(w *remediate.Wave) string {
	names := func(members map[string]bool) []string {
		var out []string
		for name := range members {
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
	var own, ceiling []string
	if w.Effect != nil {
		own = w.Effect.Policies
	}
	if w.Ceiling != nil {
		ceiling = append(slices.Clone(w.Ceiling.Policies), names(w.Ceiling.Members)...)
	}
	return fmt.Sprintf("%s %v soak %v %s %v %d%% %v %v", w.Name, names(w.Members), w.Soak, w.Require, w.Timeout, w.MaxFailed, own, ceiling)
}

// TestCorrector_IgnoredOptOutIsNotProtected: what the status counts is what is not written.
func TestCorrector_IgnoredOptOutIsNotProtected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		for version, namespace := range []string{"shop", "kube-system", "shop"} { // the last one again, changed
			scope.Upsert(scope.Item(&aggregate.Record{Namespace: namespace, Name: "web", UID: "web", ResourceVersion: fmt.Sprint(version), Body: fmt.Appendf(nil,
				`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"federator.dev/protect":""},"name":"web","namespace":%q},"spec":{"replicas":0}}`, namespace)}))
		}
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
		a, c, _ := startCorrector(t, index, bindingB)
		for _, ignore := range []bool{false, true, false} {
			setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, IgnoreOptOut: ignore, OverrideGitOps: ignore})
			a.describe("b")
			want := 2
			if ignore {
				want = 1
			}
			if s := c.Status("b"); s.Protected["fleet/a"] != want {
				t.Errorf("ignore %v: %+v", ignore, s)
			}
			for _, i := range a.policies["b"].intents {
				if i.IgnoreOptOut != ignore || i.OverrideGitOps != ignore {
					t.Errorf("ignore %v: %+v", ignore, i)
				}
			}
		}
	})
}
