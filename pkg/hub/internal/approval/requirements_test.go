package approval_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/internal/approval"
)

func TestOfPolicy_WhatWasAndIsRequired(t *testing.T) {
	r := func(n int32) v1alpha1.ApprovalRequirement { return v1alpha1.ApprovalRequirement{Required: n} }
	joe := approval.Authors{Users: []v1alpha1.UserName{"joe"}, Proven: true}
	unproven := approval.Authors{Users: []v1alpha1.UserName{"joe"}}
	needed := func(kept *v1alpha1.KeptApproval, authors approval.Authors, required ...v1alpha1.ApprovalRequirement) (out []string) {
		for _, r := range approval.OfPolicy(kept, required, authors) {
			out = append(out, fmt.Sprint(r.Needed(), r.Authors))
		}
		return out
	}
	two := []v1alpha1.ApprovalRequirement{r(2)}
	for _, c := range []struct {
		got  []string
		want string
	}{
		{needed(nil, joe), "[1 []]"},
		{needed(nil, joe, r(2)), "[3 [joe]]"}, // who has changed the policy is not known
		{needed(&v1alpha1.KeptApproval{Requirements: two}, joe, r(1)), "[2 [joe] 1 [joe]]"},
		{needed(&v1alpha1.KeptApproval{Requirements: two, Authors: []v1alpha1.UserName{"joe", "ann"}}, joe), "[2 [ann joe]]"},
		{needed(&v1alpha1.KeptApproval{Requirements: two, AuthorsUnproven: true}, joe), "[3 [joe]]"},
		{needed(&v1alpha1.KeptApproval{Requirements: two}, unproven), "[3 [joe]]"},
	} {
		if fmt.Sprint(c.got) != c.want {
			t.Errorf("people %v, want %s", c.got, c.want)
		}
	}
}
