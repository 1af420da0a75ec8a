package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/internal/versions"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

func shortDigest(d v1alpha1.Digest) string { return string(d[:12]) }

// rolled returns the versions of a policy: its package has one digest, and a candidate maybe another.
func rolled(t *testing.T, fp *v1alpha1.FleetPolicy, source *v1alpha1.VersionRollout, active, candidate string) *rolling {
	t.Helper()
	p := versions.Policy{Rollout: versions.Rollout(&fp.Spec, source), Parameters: fp.Spec.Parameters, Status: fp.Status.Rollout}
	if active != "" {
		p.Active = versions.Package{Name: fp.Spec.Package, Digest: v1alpha1.Digest(active)}
	}
	if candidate != "" {
		p.Candidate = versions.Package{Name: fp.Spec.Package + "@c", Digest: v1alpha1.Digest(candidate)}
	}
	plan, err := versions.Decide(&p)
	if err != nil {
		t.Fatal(err)
	}
	return &rolling{Plan: plan, rollout: p.Rollout, waves: versions.Waves(&fp.Spec, source)}
}

// in records that the next version is in a phase, and returns the versions then.
func in(t *testing.T, fp *v1alpha1.FleetPolicy, source *v1alpha1.VersionRollout, active, candidate string, phase v1alpha1.RolloutPhase, waves int32) *rolling {
	t.Helper()
	fp.Status.Rollout = nil // a version that was promoted is taken back no more
	r := rolled(t, fp, source, active, candidate)
	if fp.Status.Rollout = r.Status(); r.Next != nil {
		fp.Status.Rollout.Candidate = &v1alpha1.CandidateVersion{Digest: r.Next.Digest, Package: r.Next.Digests.Package, Phase: phase, Waves: waves, Message: "it finds too much"}
	}
	return rolled(t, fp, source, active, candidate)
}

// TestRolling_SpecOfEachPhase: what is corrected while a version takes the place of another, whose
// generation is what it stays.
func TestRolling_SpecOfEachPhase(t *testing.T) {
	const active, next = "aaaaaaaaaaaaaaaa", "cccccccccccccccc"
	waves := []v1alpha1.Wave{{Name: "first", Members: v1alpha1.MemberSelector{Names: []v1alpha1.MemberPattern{"fleet/eu-1"}}}, {Name: "rest"}}
	for name, source := range map[string]*v1alpha1.VersionRollout{"waves of its own": nil, "waves of the source": {Waves: waves}} {
		t.Run(name, func(t *testing.T) {
			fp := full(t)
			pkg := fp.Spec.Package
			fp.Spec.Suspend = false
			if fp.Spec.Rollout = nil; source == nil {
				fp.Spec.Rollout = &v1alpha1.VersionRollout{Waves: waves}
			} else {
				fp.Spec.Waves = nil
			}
			ceiling := &enforce.Ceiling{Mode: policy.Enforce, Waves: []enforce.Wave{{Name: "outer"}}}
			origins := map[string]Origin{pkg: {Source: "git", Commit: "old", Path: "p.rego", Ceiling: ceiling}, pkg + "@c": {Source: "git", Commit: "new", Path: "q.rego"}}
			spec := func(r *rolling) enforce.EnforcementSpec {
				t.Helper()
				s, err := r.spec(fp, origins)
				if err != nil {
					t.Fatal(err)
				}
				if len(s.Waves) != 2 || s.Waves[0].Name != "first" || s.Ceiling != ceiling {
					t.Errorf("waves %+v, ceiling %+v", s.Waves, s.Ceiling)
				}
				return s
			}
			before := spec(in(t, fp, source, active, "", "", 0))
			r := in(t, fp, source, active, next, v1alpha1.RolloutShadow, 0)
			former, new := r.Former.Short(), r.Next.Short()
			if s := spec(r); s.Version != former || s.Generation != before.Generation || s.Commit != "old" || s.Rollout != nil || s.Hold != "" {
				t.Errorf("in shadow: %+v", s)
			}
			inWaves := spec(in(t, fp, source, active, next, v1alpha1.RolloutWaves, 1))
			want := enforce.VersionRollout{Former: enforce.FormerVersion{Version: former, Generation: before.Generation, Source: "git", Commit: "old", Path: "p.rego"}, Promoted: 1}
			if s := inWaves; s.Version != new || s.Commit != "new" || s.Path != "q.rego" || s.Digests.Package != next || s.Rollout == nil || *s.Rollout != want {
				t.Errorf("in waves: %+v of %+v", s.Rollout, s)
			}
			if s := spec(in(t, fp, source, active, next, v1alpha1.RolloutPromoted, 2)); s.Generation != inWaves.Generation || s.Version != new || s.Rollout != nil {
				t.Errorf("promoted: %+v", s)
			}
			if s := spec(in(t, fp, source, active, next, v1alpha1.RolloutTakenBack, 0)); s.Version != former || s.Generation != before.Generation || s.Hold != "version "+new+" was taken back: it finds too much" {
				t.Errorf("taken back: %+v", s)
			}
			in(t, fp, source, active, next, v1alpha1.RolloutPromoted, 2)
			origins[pkg] = Origin{Source: "git", Commit: "new", Path: "q.rego", Ceiling: ceiling}
			if s := spec(rolled(t, fp, source, next, "")); s.Generation != inWaves.Generation || s.Version != new || s.Rollout != nil || s.Commit != "new" {
				t.Errorf("once its commit is active, the generation is %s, and was %s in its waves: %+v", s.Generation, inWaves.Generation, s)
			}
		})
	}
}

// TestRolling_FirstVersion is only reported while it is in shadow.
func TestRolling_FirstVersion(t *testing.T) {
	fp := full(t)
	fp.Spec.Rollout = &v1alpha1.VersionRollout{}
	origins := map[string]Origin{fp.Spec.Package + "@c": {Source: "git", Commit: "new", Ceiling: &enforce.Ceiling{}}}
	for phase, want := range map[v1alpha1.RolloutPhase]string{
		v1alpha1.RolloutShadow: "is in shadow", v1alpha1.RolloutPromoted: "", v1alpha1.RolloutTakenBack: "was taken back: it finds too much",
	} {
		s, err := in(t, fp, nil, "", "cccccccccccccccc", phase, 0).spec(fp, origins)
		if err != nil || s.Ceiling == nil || s.Commit != "new" || !strings.HasSuffix(s.Hold, want) || (want == "") != (s.Hold == "") || s.Rollout != nil {
			t.Errorf("%s: %+v, %v", phase, s, err)
		}
	}
}

// tiers is a set with a package that takes a parameter.
func tiers(t *testing.T) *policy.Set {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Name: "shelf", Files: []policy.File{{Path: "tier.rego", Data: []byte(`# METADATA
# title: Tiers
# custom: {severity: low, kinds: [ConfigMap], parameters: {type: object, additionalProperties: false, properties: {tier: {type: string, default: gold}}}}
package acme.tier

violation contains {"msg": sprintf("not %s", [input.parameters.tier])} if input.object.metadata.labels.tier != input.parameters.tier
`)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func tierPolicy(tier string) *v1alpha1.FleetPolicy {
	fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tier", UID: "u", Generation: 1}, Spec: v1alpha1.FleetPolicySpec{
		Package: "acme.tier", Mode: v1alpha1.Enforce, Rollout: &v1alpha1.VersionRollout{}, Parameters: &runtime.RawExtension{Raw: []byte(fmt.Sprintf(`{"tier":%q}`, tier))},
		Waves: []v1alpha1.Wave{
			{Name: "test", Members: v1alpha1.MemberSelector{Names: []v1alpha1.MemberPattern{"fleet/test-*"}}},
			{Name: "canary", Members: v1alpha1.MemberSelector{Names: []v1alpha1.MemberPattern{"fleet/eu-1"}}},
			{Name: "rest"},
		},
	}}
	return fp
}

// recorded has the tier gold in effect, and wants silver.
func recorded(t *testing.T, set *policy.Set) *v1alpha1.FleetPolicy {
	t.Helper()
	fp := tierPolicy("gold")
	r, why := rollingOf(set, fp, map[string]Origin{"acme.tier": {}}, &whatIsKnown{})
	if r == nil {
		t.Fatal(why)
	}
	fp.Status.Rollout = r.Status()
	fp.Spec.Parameters = tierPolicy("silver").Spec.Parameters
	return fp
}

// TestRolling_BindingOfEachPhase: one binding of both versions, and who has which.
func TestRolling_BindingOfEachPhase(t *testing.T) {
	set, origins := tiers(t), map[string]Origin{"acme.tier": {}}
	for _, c := range []struct {
		phase v1alpha1.RolloutPhase
		waves int32
		want  string
	}{
		{"", 0, "gold; silver in [], whole false"}, // not recorded yet
		{v1alpha1.RolloutShadow, 0, "gold; silver in [], whole false"},
		{v1alpha1.RolloutWaves, 1, "gold; silver in [{[fleet/test-*] nil}], whole false"},
		{v1alpha1.RolloutWaves, 2, "gold; silver in [{[fleet/test-*] nil} {[fleet/eu-1] nil}], whole false"},
		{v1alpha1.RolloutWaves, 3, "gold; silver in [{[fleet/test-*] nil} {[fleet/eu-1] nil} {[] nil}], whole true"},
		{v1alpha1.RolloutPromoted, 3, "silver"},
		{v1alpha1.RolloutTakenBack, 0, "gold"},
	} {
		fp := recorded(t, set)
		wanted, _ := rollingOf(set, fp, origins, &whatIsKnown{})
		if c.phase != "" {
			fp.Status.Rollout.Candidate = &v1alpha1.CandidateVersion{Digest: wanted.Next.Digest, Package: wanted.Next.Digests.Package, Phase: c.phase, Waves: c.waves}
		}
		r, _ := rollingOf(set, fp, origins, &whatIsKnown{})
		b, spec, why := bindingFor(set, fp, r, origins)
		if why.reason != "" {
			t.Fatal(why)
		}
		got := fmt.Sprint(b.Parameters["tier"])
		if n := b.Next; n != nil {
			got += fmt.Sprintf("; %s in %s, whole %t", n.Binding.Parameters["tier"], strings.ReplaceAll(fmt.Sprint(n.Members), "<nil>", "nil"), n.Whole)
			if n.Binding.Version != shortDigest(wanted.Next.Digest) || n.Binding.Name != b.Name || b.Version != shortDigest(wanted.Former.Digest) {
				t.Errorf("%s: versions %s and %s", c.phase, b.Version, n.Binding.Version)
			}
		}
		if got != c.want {
			t.Errorf("%s %d: %s, want %s", c.phase, c.waves, got, c.want)
		}
		if _, err := policy.ValidateBindings(set, []policy.Binding{b}); err != nil {
			t.Error(err)
		}
		if inWaves := c.phase == v1alpha1.RolloutWaves; inWaves != (spec.Rollout != nil) {
			t.Errorf("%s: %+v", c.phase, spec.Rollout)
		}
	}
}

// TestRolling_ParametersThatThePackageDoesNotTake: what was in effect is observed, and the leader
// takes the version back.
func TestRolling_ParametersThatThePackageDoesNotTake(t *testing.T) {
	set, origins := tiers(t), map[string]Origin{"acme.tier": {}}
	fp := recorded(t, set)
	fp.Spec.Parameters.Raw = []byte(`{"teir":"silver"}`)
	r, _ := rollingOf(set, fp, origins, &whatIsKnown{})
	b, spec, why := bindingFor(set, fp, r, origins)
	if why.reason != "" || b.Next != nil || b.Parameters["tier"] != "gold" || !strings.Contains(spec.Hold, "was taken back: it is not valid") || !strings.Contains(spec.Hold, "teir") {
		t.Errorf("%+v %+v %q", why, b, spec.Hold)
	}
	f := decider(t, r, spec)
	got := f.rolloutOf(fp, r, &remediate.Status{})
	if c := got.Candidate; c == nil || c.Phase != v1alpha1.RolloutTakenBack || !strings.Contains(c.Message, "it is not valid") {
		t.Errorf("%+v", c)
	}
}

// decider returns what decides as the leader, with the versions of a policy.
func decider(t *testing.T, r *rolling, spec enforce.EnforcementSpec) *FleetPolicies {
	t.Helper()
	return &FleetPolicies{
		opts:     FleetPoliciesOptions{Library: &whatIsKnown{}, Corrector: enforce.NewCorrector(nil, nil), Clock: time.Now, IsLeader: func() bool { return true }},
		rollings: map[string]*rolling{"tier": r}, specs: map[string]enforce.EnforcementSpec{"tier": spec}, origins: map[string]Origin{"acme.tier": {}},
	}
}

// TestRolloutOf_WithoutARollout: nothing is recorded, and what was is forgotten.
func TestRolloutOf_WithoutARollout(t *testing.T) {
	set := tiers(t)
	fp := recorded(t, set)
	fp.Spec.Rollout = nil
	r, _ := rollingOf(set, fp, map[string]Origin{"acme.tier": {}}, &whatIsKnown{})
	if got := decider(t, r, enforce.EnforcementSpec{}).rolloutOf(fp, r, nil); got != nil || string(r.Former.Parameters.Raw) != `{"tier":"silver"}` {
		t.Errorf("%+v", got)
	}
}

// TestStatusDue_EvidenceWaits as other counters do, and phases do not.
func TestStatusDue_EvidenceWaits(t *testing.T) {
	status := func(phase v1alpha1.RolloutPhase, news int64, at time.Time) *v1alpha1.FleetPolicyStatus {
		return &v1alpha1.FleetPolicyStatus{Rollout: &v1alpha1.PolicyRolloutStatus{Candidate: &v1alpha1.CandidateVersion{
			Digest: "d", Phase: phase, Began: metav1.NewTime(at), Since: metav1.NewTime(at), Evidence: &v1alpha1.RolloutEvidence{New: news},
		}}}
	}
	now := time.Now()
	at := now.Truncate(time.Second)
	is := status(v1alpha1.RolloutShadow, 1, at)
	for name, c := range map[string]struct {
		next  *v1alpha1.FleetPolicyStatus
		after time.Duration
		want  bool
	}{
		"the same, of another clock": {status(v1alpha1.RolloutShadow, 1, at.UTC().Add(time.Millisecond)), time.Hour, false},
		"evidence":                   {status(v1alpha1.RolloutShadow, 2, at), time.Second, false},
		"evidence, later":            {status(v1alpha1.RolloutShadow, 2, at), countersInterval, true},
		"another phase":              {status(v1alpha1.RolloutWaves, 2, at), time.Second, true},
	} {
		if got := statusDue(is, c.next, now, now.Add(c.after)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
