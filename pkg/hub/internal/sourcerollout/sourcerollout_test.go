package sourcerollout_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/internal/promotion"
	"federator.dev/federator/pkg/hub/internal/sourcerollout"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

var began = time.Unix(1_800_000_000, 0)

func begin(policies ...sourcerollout.Policy) *v1alpha1.SourceRolloutStatus {
	return sourcerollout.Next(nil, commit, policies, nil, began)
}

// TestNext_IsNoFurtherThanAnyPolicy: and says what it waits for.
func TestNext_IsNoFurtherThanAnyPolicy(t *testing.T) {
	of := func(name string, phase v1alpha1.RolloutPhase, message string) sourcerollout.Policy {
		return sourcerollout.Policy{Name: name, Phase: phase, Message: message}
	}
	a, b := of("a", v1alpha1.RolloutPromoted, ""), of("b", v1alpha1.RolloutPromoted, "")
	for _, c := range []struct {
		name     string
		policies []sourcerollout.Policy
		phase    v1alpha1.RolloutPhase
		waiting  int32
		message  string
	}{
		{"none", nil, v1alpha1.RolloutPromoted, 0, ""},
		{"all are promoted", []sourcerollout.Policy{a, b}, v1alpha1.RolloutPromoted, 0, "all 2 policies"},
		{"one has not begun", []sourcerollout.Policy{a, of("b", "", "")}, v1alpha1.RolloutShadow, 1, `1 of 2 policies wait; policy "b": its rollout has not begun`},
		{"one is in shadow", []sourcerollout.Policy{a, of("b", v1alpha1.RolloutShadow, "in shadow until noon")}, v1alpha1.RolloutShadow, 1, `policy "b": in shadow until noon`},
		{"one is in its waves", []sourcerollout.Policy{of("a", v1alpha1.RolloutShadow, "in shadow"), of("b", v1alpha1.RolloutWaves, "in wave 1")}, v1alpha1.RolloutWaves, 2, `2 of 2 policies wait; policy "a": in shadow`},
		{"one is taken back", []sourcerollout.Policy{of("a", v1alpha1.RolloutShadow, "in shadow"), b, of("c", v1alpha1.RolloutTakenBack, "it finds 9")}, v1alpha1.RolloutTakenBack, 3, `policy "c": it finds 9`},
	} {
		got := sourcerollout.Next(begin(c.policies...), commit, c.policies, nil, began.Add(time.Minute))
		since := began.Add(time.Minute)
		if c.phase == v1alpha1.RolloutShadow {
			since = began
		}
		if got.Phase != c.phase || got.Waiting != c.waiting || int(got.Policies) != len(c.policies) || !strings.Contains(got.Message, c.message) || !got.Began.Time.Equal(began) || !got.Since.Time.Equal(since) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestNext_BeginsInShadow: nothing is decided before it is recorded that it has begun.
func TestNext_BeginsInShadow(t *testing.T) {
	promoted := []sourcerollout.Policy{{Name: "a", Phase: v1alpha1.RolloutPromoted}}
	first := begin(promoted...)
	if first.Phase != v1alpha1.RolloutShadow || first.Commit != commit || first.Waiting != 1 {
		t.Errorf("%+v", first)
	}
	done := sourcerollout.Next(first, commit, promoted, nil, began.Add(time.Second))
	back := sourcerollout.Next(first, commit, []sourcerollout.Policy{{Name: "a", Phase: v1alpha1.RolloutTakenBack, Message: "x"}}, nil, began.Add(time.Second))
	for _, end := range []*v1alpha1.SourceRolloutStatus{done, back} {
		for _, phase := range []v1alpha1.RolloutPhase{"", v1alpha1.RolloutWaves, v1alpha1.RolloutPromoted, v1alpha1.RolloutTakenBack} {
			if got := sourcerollout.Next(end, commit, []sourcerollout.Policy{{Name: "a", Phase: phase}}, nil, began.Add(time.Hour)); got != end {
				t.Errorf("%s does not stay: %+v", end.Phase, got)
			}
		}
		// Another commit begins again.
		other := strings.Repeat("f", 40)
		if got := sourcerollout.Next(end, other, promoted, nil, began.Add(time.Hour)); string(got.Commit) != other || got.Phase != v1alpha1.RolloutShadow || !got.Began.Time.Equal(began.Add(time.Hour)) {
			t.Errorf("%+v", got)
		}
	}
}

// TestNext_PackagesWithoutFleetPolicyAreOnePolicy: by the terms of the source, without waves.
func TestNext_PackagesWithoutFleetPolicyAreOnePolicy(t *testing.T) {
	terms, err := promotion.TermsOf(&v1alpha1.VersionRollout{Shadow: &metav1.Duration{Duration: time.Hour}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	complete := v1alpha1.RolloutEvidence{Complete: true, Subjects: 100, New: 5}
	many := v1alpha1.RolloutEvidence{Complete: true, Subjects: 100, New: 6}
	partly := v1alpha1.RolloutEvidence{Subjects: 100, New: 6}
	for _, c := range []struct {
		name  string
		facts promotion.Facts
		after time.Duration
		phase v1alpha1.RolloutPhase
	}{
		{"in shadow", promotion.Facts{Evidence: complete}, time.Hour - time.Second, v1alpha1.RolloutShadow},
		{"after it", promotion.Facts{Evidence: complete}, time.Hour, v1alpha1.RolloutPromoted},
		{"approved", promotion.Facts{Evidence: complete, Approved: true}, time.Minute, v1alpha1.RolloutPromoted},
		{"not all is read", promotion.Facts{Evidence: partly, Approved: true}, 2 * time.Hour, v1alpha1.RolloutShadow},
		{"too much", promotion.Facts{Evidence: many}, time.Minute, v1alpha1.RolloutTakenBack},
	} {
		rest := &sourcerollout.Rest{Terms: terms, Facts: c.facts}
		first := sourcerollout.Next(nil, commit, nil, rest, began.Add(-time.Minute))
		first = sourcerollout.Next(first, commit, nil, &sourcerollout.Rest{Terms: terms, Facts: promotion.Facts{Evidence: v1alpha1.RolloutEvidence{Complete: c.facts.Evidence.Complete}}}, began)
		got := sourcerollout.Next(first, commit, nil, rest, began.Add(c.after))
		if first.Policies != 1 || got.Policies != 1 || got.Phase != c.phase || got.Evidence == nil || *got.Evidence != c.facts.Evidence {
			t.Errorf("%s: %+v", c.name, got)
		}
		if c.phase == v1alpha1.RolloutTakenBack && !strings.Contains(got.Message, "packages without a FleetPolicy: it finds 6 violations") {
			t.Errorf("%s: %q", c.name, got.Message)
		}
	}
	// Its shadow counts from the first complete evidence, also while others come to another phase, and over a member that is away.
	step := func(old *v1alpha1.SourceRolloutStatus, e v1alpha1.RolloutEvidence, phase v1alpha1.RolloutPhase, after time.Duration) *v1alpha1.SourceRolloutStatus {
		return sourcerollout.Next(old, commit, []sourcerollout.Policy{{Name: "a", Phase: phase}}, &sourcerollout.Rest{Terms: terms, Facts: promotion.Facts{Evidence: e}}, began.Add(after))
	}
	is := step(begin(), partly, v1alpha1.RolloutShadow, 3*time.Hour)
	if !is.Since.Time.Equal(began) || !strings.Contains(is.Message, "2 of 2") {
		t.Errorf("%+v", is)
	}
	is = step(is, partly, v1alpha1.RolloutWaves, 4*time.Hour)
	is = step(is, complete, v1alpha1.RolloutWaves, 5*time.Hour)
	is = step(is, partly, v1alpha1.RolloutPromoted, 6*time.Hour-time.Second)
	if is = step(is, complete, v1alpha1.RolloutPromoted, 6*time.Hour-time.Second); is.Phase != v1alpha1.RolloutShadow || !is.Since.Time.Equal(began.Add(5*time.Hour)) {
		t.Errorf("%+v", is)
	}
	if is = step(is, complete, v1alpha1.RolloutPromoted, 6*time.Hour); is.Phase != v1alpha1.RolloutPromoted || !is.Since.Time.Equal(began.Add(6*time.Hour)) {
		t.Errorf("%+v", is)
	}
	// It waits for others, and they for it.
	rest := &sourcerollout.Rest{Terms: terms, Facts: promotion.Facts{Evidence: complete}}
	waves := []sourcerollout.Policy{{Name: "a", Phase: v1alpha1.RolloutWaves}}
	if got := sourcerollout.Next(begin(), commit, waves, rest, began.Add(time.Minute)); got.Phase != v1alpha1.RolloutWaves || got.Waiting != 2 {
		t.Errorf("%+v", got)
	}
}

func load(t *testing.T, label string) *policy.Set {
	t.Helper()
	return loadText(t, text(label))
}

func text(label string) string {
	return "# METADATA\n# title: T\n# description: D.\n# custom:\n#   severity: low\n#   kinds: [Pod]\npackage p\n\nviolation contains {\"msg\": \"m\"} if input.object.metadata.labels." + label + "\n"
}

func loadText(t *testing.T, text string) *policy.Set {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Name: "team", Files: []policy.File{{Path: "p.rego", Data: []byte(text)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestPoliciesOf_AreAsFarAsTheySay: of this version, and no other.
func TestPoliciesOf_AreAsFarAsTheySay(t *testing.T) {
	next := load(t, "next")
	digest := v1alpha1.Digest(next.Digest("p"))
	other := v1alpha1.Digest(strings.Repeat("f", 64))
	of := func(change func(*v1alpha1.FleetPolicy)) *v1alpha1.FleetPolicy {
		fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fp"}, Spec: v1alpha1.FleetPolicySpec{Package: "p"}}
		change(fp)
		return fp
	}
	at := func(is v1alpha1.Digest, phase v1alpha1.RolloutPhase) func(*v1alpha1.FleetPolicy) {
		return func(fp *v1alpha1.FleetPolicy) {
			fp.Status.Rollout = &v1alpha1.PolicyRolloutStatus{Candidate: &v1alpha1.CandidateVersion{Package: is, Phase: phase, Message: "m"}}
		}
	}
	effective := func(is v1alpha1.Digest, candidate *v1alpha1.CandidateVersion) func(*v1alpha1.FleetPolicy) {
		return func(fp *v1alpha1.FleetPolicy) {
			fp.Status.Rollout = &v1alpha1.PolicyRolloutStatus{Effective: &v1alpha1.EffectiveVersion{Package: is}, Candidate: candidate}
		}
	}
	const none = v1alpha1.RolloutPhase("none")
	for name, c := range map[string]struct {
		change func(*v1alpha1.FleetPolicy)
		want   v1alpha1.RolloutPhase
	}{
		"it has not begun":               {func(*v1alpha1.FleetPolicy) {}, ""},
		"waves":                          {at(digest, v1alpha1.RolloutWaves), v1alpha1.RolloutWaves},
		"of an older version":            {at(other, v1alpha1.RolloutPromoted), ""},
		"taken back":                     {at(digest, v1alpha1.RolloutTakenBack), v1alpha1.RolloutTakenBack},
		"it is in effect":                {effective(digest, nil), v1alpha1.RolloutPromoted},
		"another is":                     {effective(other, nil), ""},
		"its parameters roll":            {effective(digest, &v1alpha1.CandidateVersion{Package: digest, Phase: v1alpha1.RolloutWaves}), v1alpha1.RolloutWaves},
		"its parameters were taken back": {effective(digest, &v1alpha1.CandidateVersion{Package: digest, Phase: v1alpha1.RolloutTakenBack}), v1alpha1.RolloutPromoted},
		"another was in effect when it was taken back": {effective(other, &v1alpha1.CandidateVersion{Package: digest, Phase: v1alpha1.RolloutTakenBack}), v1alpha1.RolloutTakenBack},
		"of another package":                           {func(fp *v1alpha1.FleetPolicy) { fp.Spec.Package = "q" }, none},
		"of another source":                            {func(fp *v1alpha1.FleetPolicy) { fp.Spec.Source = "other" }, none},
		"of this source":                               {func(fp *v1alpha1.FleetPolicy) { fp.Spec.Source = "team" }, ""},
		"it is not in effect": {func(fp *v1alpha1.FleetPolicy) {
			fp.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Reason: "Invalid"}}
		}, none},
		"it is of no package": {func(fp *v1alpha1.FleetPolicy) {
			fp.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Reason: "NoPackage"}}
		}, ""},
	} {
		is := none
		for _, p := range sourcerollout.PoliciesOf("team", &policysource.RollingOut{Set: next, Packages: []string{"gone", "p"}}, &v1alpha1.VersionRollout{}, []*v1alpha1.FleetPolicy{of(c.change)}) {
			is = p.Phase
		}
		if is != c.want {
			t.Errorf("%s: %q, want %q", name, is, c.want)
		}
	}
	// Where neither the source nor the policy asks for it, it takes its place at once.
	if got := sourcerollout.PoliciesOf("team", &policysource.RollingOut{Set: next, Packages: []string{"p"}}, nil, []*v1alpha1.FleetPolicy{of(func(*v1alpha1.FleetPolicy) {})}); len(got) != 1 || got[0].Phase != v1alpha1.RolloutPromoted {
		t.Errorf("%+v", got)
	}
	asks := of(func(fp *v1alpha1.FleetPolicy) { fp.Spec.Rollout = &v1alpha1.VersionRollout{} })
	for want, list := range map[bool][]*v1alpha1.FleetPolicy{true: {asks}, false: {of(func(*v1alpha1.FleetPolicy) {})}} {
		if got := sourcerollout.Asks("team", []string{"p"}, list); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if sourcerollout.Asks("team", []string{"q"}, []*v1alpha1.FleetPolicy{asks}) {
		t.Error("a policy of another source's package has versions of this one roll out")
	}
}
