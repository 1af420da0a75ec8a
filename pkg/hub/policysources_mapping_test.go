package hub

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/remediate"
)

func sourceWith(t *testing.T, ceiling string) *v1alpha1.PolicySource {
	t.Helper()
	var ps v1alpha1.PolicySource
	if err := yaml.UnmarshalStrict([]byte("{metadata: {name: git, uid: u1}, spec: {ceiling: "+ceiling+"}}"), &ps); err != nil {
		t.Fatal(err)
	}
	return &ps
}

func TestToCeiling_MapsEveryField(t *testing.T) {
	got, err := toCeiling(sourceWith(t, `{
  maxMode: Enforce, members: {names: [fleet/eu-*]}, namespaces: [shop], actions: [{verbs: [patch, apply], kinds: [ConfigMap]}],
  limits: {window: 2h, policy: {count: 5, percent: 10}, member: {count: 2}, fleet: {percent: 50}, actionsPerMinute: 7},
  window: {schedule: "0 2 * * *", duration: 1h}, waves: [{name: test, soak: 1h, health: {require: NotDegraded, timeout: 1m, maxFailed: 3}, effect: {policies: [slo], unknown: true}}],
  force: true, actAs: ["", fixer], gitops: Override, optOut: None,
}`))
	if err != nil || got.Window == nil || len(got.Version) != 32 {
		t.Fatalf("%+v: %v", got, err)
	}
	got.Window, got.Version = nil, ""
	want := enforce.Ceiling{
		Mode: policy.Enforce, Members: policy.MemberSelector{Names: []string{"fleet/eu-*"}}, Namespaces: []string{"shop"},
		Actions: []enforce.AllowedAction{{Verbs: []string{"patch", "apply"}, Kinds: []string{"ConfigMap"}}},
		Force:   true, ActAs: []string{"", "fixer"}, OverrideGitOps: true, IgnoreOptOut: true,
		Limits: remediate.Limits{
			Window: 2 * time.Hour, Policy: remediate.Limit{Count: 5, Percent: 10}, Member: remediate.Limit{Count: 2}, Fleet: remediate.Limit{Percent: 50}, PerMinute: 7,
		},
		Waves: []enforce.Wave{{
			Name: "test", Soak: time.Hour, Require: v1alpha1.RequireNotDegraded, Timeout: time.Minute, MaxFailed: 3,
			Effect: &remediate.EffectGate{Policies: []string{"slo"}, Unknown: true},
		}},
	}
	if a, b := asJSON(t, got), asJSON(t, want); a != b {
		t.Errorf("ceiling\n%s\nwant\n%s", a, b)
	}
	least, err := toCeiling(sourceWith(t, `{}`))
	least.Version = ""
	if a, b := asJSON(t, least), asJSON(t, enforce.Ceiling{Mode: policy.Observe}); err != nil || a != b {
		t.Errorf("without any: %s, want %s: %v", a, b, err)
	}
}

// TestToCeiling_VersionNamesTheCeiling: of what was planned under one, nothing is written
// under another.
func TestToCeiling_VersionNamesTheCeiling(t *testing.T) {
	ps := sourceWith(t, `{maxMode: Enforce}`)
	first := ceilingVersion(ps)
	ps.Generation, ps.Spec.URL = 2, "https://git.example/other"
	if ceilingVersion(ps) != first {
		t.Error("another URL is another ceiling")
	}
	ps.Spec.Ceiling.Notifications = []string{"pager"}
	if ceilingVersion(ps) != first || len(ps.Spec.Ceiling.Notifications) != 1 {
		t.Error("what policies may notify is another ceiling")
	}
	ps.UID = "u2"
	if ceilingVersion(ps) == first {
		t.Error("that of another PolicySource is the same")
	}
	for _, ceiling := range []string{
		`{maxMode: DryRun}`, `{maxMode: Enforce, namespaces: [shop]}`, `{maxMode: Enforce, limits: {policy: {count: 1}}}`,
		`{maxMode: Enforce, window: {schedule: "0 2 * * *", duration: 1h}}`, `{maxMode: Enforce, waves: [{name: test}]}`, `{maxMode: Enforce, approval: {required: 2}}`,
	} {
		if ceilingVersion(sourceWith(t, ceiling)) == first {
			t.Errorf("%s is the same", ceiling)
		}
	}
}

// TestToSource_InvalidCeilingIsAProblem: nothing is allowed by it, and other policies go on.
func TestToSource_InvalidCeilingIsAProblem(t *testing.T) {
	for ceiling, want := range map[string]string{
		`{maxMode: Enforce, window: {schedule: "0 2 5-2 * *", duration: 1h}}`:                             "spec.ceiling: window",
		`{maxMode: Enforce, waves: [{name: test, members: {labels: {matchLabels: {a: "not a value"}}}}]}`: `spec.ceiling: wave "test"`,
		`{maxMode: Enforce, members: {labels: {matchLabels: {a: "not a value"}}}}`:                        "spec.ceiling: ",
	} {
		ps := sourceWith(t, ceiling)
		if _, bad := toSource(ps, false, nil); bad.reason != "Invalid" || !strings.HasPrefix(bad.message, want) {
			t.Errorf("%s: %+v, want %q", ceiling, bad, want)
		}
		if c, err := toCeiling(ps); err == nil || c.Mode != policy.Observe || len(c.Actions) > 0 {
			t.Errorf("%s: %+v: %v", ceiling, c, err)
		}
	}
}

// TestPolicySources_EvidenceIsOfADirectory: processes that have not seen yet that a source has another one find what its commit changes
// in the one before, and that is no evidence on the other.
func TestPolicySources_EvidenceIsOfADirectory(t *testing.T) {
	s := &PolicySources{opts: PolicySourcesOptions{State: func() *policy.State { return nil }}, evidence: map[string]seenEvidence{}}
	now := time.Now()
	of := func(before, after string) string {
		state := &policysource.State{Beside: &policy.Set{}, Policies: map[string]policysource.Policies{"team": {Commit: policysource.Commit{Hash: "a", Path: before}}}}
		return s.evidenceOf("team", &policysource.RollingOut{Commit: policysource.Commit{Hash: "b", Path: after}}, state, nil, now).Of
	}
	same := of("prod", "prod")
	for _, paths := range [][2]string{{"prod", "test"}, {"test", "prod"}, {"test", "test"}} {
		if got := of(paths[0], paths[1]); got == same {
			t.Errorf("the evidence on %v is of %q, as that on prod", paths, got)
		}
	}
	if got := of("prod", "prod"); got != same {
		t.Errorf("the same has %q and %q", same, got)
	}
}
