package hubrequests

import (
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/api/v1alpha1"
)

// TestGroupsToName_WhatMatters: groups of everybody name nobody, and what is required is among
// the first 50.
func TestGroupsToName_WhatMatters(t *testing.T) {
	mine := []string{"system:authenticated", "dev", "sre", "system:serviceaccounts", "system:serviceaccounts:ci"}
	if got := fmt.Sprint(groupsToName(mine, []v1alpha1.GroupName{"sre", "finance"})); got != "[sre dev system:serviceaccounts:ci]" {
		t.Errorf("%s", got)
	}
	for n := range 60 {
		mine = append(mine, fmt.Sprint("g", n))
	}
	mine = append(mine, "finance")
	got := groupsToName(mine, []v1alpha1.GroupName{"sre", "finance"})
	if len(got) != maxGroups || got[0] != "sre" || got[1] != "finance" {
		t.Errorf("%d groups: %v", len(got), got)
	}
}

// TestVersionInShadow_IsTheOneThatIs: nobody approves a version that has come further, or another one.
func TestVersionInShadow_IsTheOneThatIs(t *testing.T) {
	digest := v1alpha1.Digest(strings.Repeat("0123456789abcdef", 4))
	fp := &v1alpha1.FleetPolicy{}
	other := v1alpha1.Digest(strings.Repeat("f", 64))
	for _, c := range []struct {
		phase v1alpha1.RolloutPhase
		given string
		want  string
	}{
		{v1alpha1.RolloutTakenBack, "0123456789ab", ""}, // other parameters
		{v1alpha1.RolloutShadow, string(digest), ""},
		{v1alpha1.RolloutShadow, "0123456789ab", ""},
		{v1alpha1.RolloutShadow, "0123", "not the digest"},
		{v1alpha1.RolloutShadow, "0123456789ax", "not the digest"},
		{v1alpha1.RolloutShadow, "fedcba987654", "no such version"},
		{v1alpha1.RolloutWaves, "0123456789ab", "its phase is Waves"},
		{"", "0123456789ab", "no such version"},
	} {
		fp.Status.Rollout = &v1alpha1.PolicyRolloutStatus{}
		if c.phase != "" {
			fp.Status.Rollout.Candidate = &v1alpha1.CandidateVersion{Digest: digest, Package: other, Phase: c.phase}
			fp.Status.Rollout.Effective = &v1alpha1.EffectiveVersion{Package: other}
		}
		got, err := versionInShadow(fp, c.given)
		if (err == nil) != (got == digest) || (c.want == "") != (err == nil) {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	fp.Status.Rollout = &v1alpha1.PolicyRolloutStatus{
		Candidate: &v1alpha1.CandidateVersion{Digest: digest, Package: digest, Phase: v1alpha1.RolloutTakenBack}, Effective: &v1alpha1.EffectiveVersion{Package: other},
	}
	if got, err := versionInShadow(fp, string(digest)); err == nil || !strings.Contains(err.Error(), "its phase is TakenBack") {
		t.Errorf("of a commit that was taken back: %q, %v", got, err)
	}
}
