package hub

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

const fullPolicy = `
metadata: {name: hosts, uid: u1, generation: 3}
spec:
  package: acme.one_host
  source: git
  members: {names: ["fleet/*"], labels: {matchLabels: {env: prod}}}
  match:
    kinds: [Ingress.networking.k8s.io]
    namespaces: [shop, "team-*"]
    labels: {matchExpressions: [{key: tier, operator: In, values: [web, api]}]}
  parameters: {max: 3, of: [a, b]}
  visibility: {names: ["fleet/eu-*"]}
  unknown: {mode: Tolerate, members: {names: [fleet/edge]}}
  exemptions:
  - {members: {names: [fleet/eu-1]}, namespaces: [shop], names: [web], labels: {matchLabels: {a: b}}, reason: agreed, expires: "2027-01-01T00:00:00Z"}
  mode: Enforce
  force: true
  limits:
    window: 2h
    maxAffected: {policy: {count: 5, percent: 10}, member: {count: 2}, fleet: {count: 50}}
    actionsPerMinute: 7
  waves:
  - {name: canary, members: {names: [fleet/eu-1]}, soak: 10m, health: {require: NotDegraded, timeout: 5m}}
  - {name: rest, soak: 1m, health: {require: Healthy, timeout: 10m}}
  window: {schedule: "0 2 * * MON", duration: 1h, timeZone: Europe/Berlin}
  suspend: true
  actAs: system:serviceaccount:platform:fixer
  gitops: Override
  optOut: None
  notifications: [pager]
`

func full(t *testing.T) *v1alpha1.FleetPolicy {
	t.Helper()
	var fp v1alpha1.FleetPolicy
	if err := yaml.UnmarshalStrict([]byte(fullPolicy), &fp); err != nil {
		t.Fatal(err)
	}
	return &fp
}

func TestToBinding_MapsEveryField(t *testing.T) {
	got, err := toBinding(full(t))
	if err != nil {
		t.Fatal(err)
	}
	var want policy.Binding
	err = yaml.UnmarshalStrict([]byte(`
name: hosts
package: acme.one_host
members: {names: ["fleet/*"], labels: {matchLabels: {env: prod}}}
match: {kinds: [Ingress.networking.k8s.io], namespaces: [shop, "team-*"], labels: {matchExpressions: [{key: tier, operator: In, values: [web, api]}]}}
parameters: {max: 3, of: [a, b]}
mode: Enforce
visibility: {names: ["fleet/eu-*"]}
tolerate: {names: [fleet/edge]}
exemptions: [{members: {names: [fleet/eu-1]}, namespaces: [shop], names: [web], labels: {matchLabels: {a: b}}, reason: agreed, expires: "2027-01-01T00:00:00Z"}]
`), &want)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := asJSON(t, got), asJSON(t, want); a != b {
		t.Errorf("binding\n%s\nwant\n%s", a, b)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestToEnforcementSpec_MapsEveryField(t *testing.T) {
	ceiling := &enforce.Ceiling{Mode: policy.DryRun}
	got, err := toEnforcementSpec(full(t), Origin{Source: "git", Commit: "abc", Path: "p.rego", Hold: "held", Ceiling: ceiling}, "digest")
	if err != nil {
		t.Fatal(err)
	}
	if got.Window == nil {
		t.Error("no window")
	}
	if len(got.Generation) != 32 {
		t.Errorf("generation %q", got.Generation)
	}
	if d := got.Digests; d.Package != "digest" || len(d.Parameters) != 64 || len(d.Spec) != 64 {
		t.Errorf("digests %+v", d)
	}
	got.Window, got.Generation, got.Digests = nil, "", v1alpha1.PlanDigests{}
	want := enforce.EnforcementSpec{
		Mode: policy.Enforce, Force: true, ActAs: "system:serviceaccount:platform:fixer", Suspend: true, OverrideGitOps: true, IgnoreOptOut: true,
		Limits: remediate.Limits{
			Window: 2 * time.Hour, Policy: remediate.Limit{Count: 5, Percent: 10}, Member: remediate.Limit{Count: 2}, Fleet: remediate.Limit{Count: 50}, PerMinute: 7,
		},
		Waves: []enforce.Wave{
			{Name: "canary", Members: policy.MemberSelector{Names: []string{"fleet/eu-1"}}, Soak: 10 * time.Minute, Require: v1alpha1.RequireNotDegraded, Timeout: 5 * time.Minute},
			{Name: "rest", Soak: time.Minute, Require: v1alpha1.RequireHealthy, Timeout: 10 * time.Minute},
		},
		Source: "git", Commit: "abc", Path: "p.rego", Hold: "held", Ceiling: ceiling,
	}
	if a, b := asJSON(t, got), asJSON(t, want); a != b {
		t.Errorf("terms\n%s\nwant\n%s", a, b)
	}
	wrong := full(t)
	wrong.Spec.Window.Schedule = "0 2 5-2 * *" // the CRD does not see that it runs backwards
	if _, err := toEnforcementSpec(wrong, Origin{}, ""); err == nil {
		t.Error("a schedule that runs backwards")
	}
}

// TestToEnforcementSpec_GenerationIsWhatIsWritten: another commit of the source, a policy
// that was made again, and suspending do not begin another rollout.
func TestToEnforcementSpec_GenerationIsWhatIsWritten(t *testing.T) {
	generation := func(digest string, change func(fp *v1alpha1.FleetPolicy, from *Origin)) string {
		t.Helper()
		fp, from := full(t), Origin{Source: "git", Commit: "abc", Path: "p.rego"}
		change(fp, &from)
		spec, err := toEnforcementSpec(fp, from, digest)
		if err != nil {
			t.Fatal(err)
		}
		return spec.Generation
	}
	first := generation("d", func(*v1alpha1.FleetPolicy, *Origin) {})
	for name, change := range map[string]func(fp *v1alpha1.FleetPolicy, from *Origin){
		"another commit": func(_ *v1alpha1.FleetPolicy, from *Origin) {
			from.Commit, from.Path, from.Hold = "def", "q.rego", "broken"
		},
		"another ceiling": func(_ *v1alpha1.FleetPolicy, from *Origin) {
			from.Ceiling = &enforce.Ceiling{Force: true, Version: "2"}
		},
		"made again":       func(fp *v1alpha1.FleetPolicy, _ *Origin) { fp.UID, fp.Generation = "u2", 1 },
		"resumed":          func(fp *v1alpha1.FleetPolicy, _ *Origin) { fp.Spec.Suspend = false },
		"notifying others": func(fp *v1alpha1.FleetPolicy, _ *Origin) { fp.Spec.Notifications = []string{"chat", "pager"} },
		"written otherwise": func(fp *v1alpha1.FleetPolicy, _ *Origin) {
			fp.Spec.Parameters.Raw = []byte(`{ "of":["a","b"], "max":3 }`)
		},
		"labels of its own":  func(fp *v1alpha1.FleetPolicy, _ *Origin) { fp.Labels = map[string]string{"a": "b"} },
		"another annotation": func(fp *v1alpha1.FleetPolicy, _ *Origin) { fp.Annotations = map[string]string{"a": "b"} },
	} {
		if generation("d", change) != first {
			t.Errorf("%s: another generation", name)
		}
	}
	if generation("e", func(*v1alpha1.FleetPolicy, *Origin) {}) == first {
		t.Error("another package: the same generation")
	}
	if generation("d", func(_ *v1alpha1.FleetPolicy, from *Origin) {
		from.Ceiling = &enforce.Ceiling{Waves: []enforce.Wave{{Name: "test"}}}
	}) == first {
		t.Error("other waves of the ceiling, with which its own are numbered: the same generation")
	}
	for name, change := range map[string]func(fp *v1alpha1.FleetPolicy){
		"parameters": func(fp *v1alpha1.FleetPolicy) { fp.Spec.Parameters.Raw = []byte(`{"max":4,"of":["a","b"]}`) },
		"mode":       func(fp *v1alpha1.FleetPolicy) { fp.Spec.Mode = v1alpha1.DryRun },
		"members":    func(fp *v1alpha1.FleetPolicy) { fp.Spec.Members.Names = []v1alpha1.MemberPattern{"fleet/eu-*"} },
		"limits":     func(fp *v1alpha1.FleetPolicy) { fp.Spec.Limits.Window = nil },
		"waves":      func(fp *v1alpha1.FleetPolicy) { fp.Spec.Waves = fp.Spec.Waves[:1] },
		"exemptions": func(fp *v1alpha1.FleetPolicy) { fp.Spec.Exemptions = nil },
		"opt-out":    func(fp *v1alpha1.FleetPolicy) { fp.Spec.OptOut = v1alpha1.HonorOptOut },
	} {
		if generation("d", func(fp *v1alpha1.FleetPolicy, _ *Origin) { change(fp) }) == first {
			t.Errorf("other %s: the same generation", name)
		}
	}
}

func TestToBinding_EmptyPolicyObservesEverywhere(t *testing.T) {
	fp := &v1alpha1.FleetPolicy{Spec: v1alpha1.FleetPolicySpec{Package: "p"}}
	fp.Name = "p"
	b, err := toBinding(fp)
	if err != nil {
		t.Fatal(err)
	}
	if got := asJSON(t, b); got != `{"name":"p","package":"p"}` {
		t.Errorf("binding %s", got)
	}
	terms, err := toEnforcementSpec(fp, Origin{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if terms.Mode != "" || terms.Limits.Window != time.Hour || terms.Limits.Policy.Percent != 10 {
		t.Errorf("terms %+v", terms)
	}
}

// TestFingerprint_EqualOriginsAreEqual: configuring again would pause enforcement.
func TestFingerprint_EqualOriginsAreEqual(t *testing.T) {
	t.Parallel()
	origin := func(maxMode policy.Mode) map[string]Origin {
		return map[string]Origin{"acme": {Source: "git", Commit: "c", Ceiling: &enforce.Ceiling{
			Mode: maxMode, Members: policy.MemberSelector{Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}},
		}}}
	}
	set := &policy.Set{}
	policies := []*v1alpha1.FleetPolicy{{Spec: v1alpha1.FleetPolicySpec{Package: "acme"}}}
	first := fingerprint(set, policies, origin(policy.Enforce))
	if again := fingerprint(set, policies, origin(policy.Enforce)); again != first {
		t.Errorf("%s\nis not\n%s", again, first)
	}
	if other := fingerprint(set, policies, origin(policy.Observe)); other == first {
		t.Errorf("another ceiling is the same: %s", other)
	}
}

// TestFleetPolicies_InvalidOnesAreNotInEffect: its author relies on what
// would be ignored.
func TestFleetPolicies_InvalidOnesAreNotInEffect(t *testing.T) {
	t.Parallel()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "old.rego", Data: []byte(`# METADATA
# title: Old members
# custom: {severity: low, subject: member}
package acme.old

violation contains {"msg": "old"} if input.member.labels.old
`)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	origins := map[string]Origin{"acme.old": {}}
	fp := &v1alpha1.FleetPolicy{Spec: v1alpha1.FleetPolicySpec{Package: "acme.old"}}
	fp.Name = "old"
	if _, why := bindingAtOnce(set, fp, origins); why.reason != "" {
		t.Fatal(why)
	}
	fp.Spec.Match.Namespaces = []v1alpha1.NamespacePattern{"shop"}
	if _, why := bindingAtOnce(set, fp, origins); why.reason != "Invalid" || !strings.Contains(why.message, "match.namespaces: package acme.old evaluates members") {
		t.Errorf("%+v", why)
	}
}
