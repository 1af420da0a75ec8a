package hubrequests

import (
	"fmt"
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
