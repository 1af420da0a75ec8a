package actions

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

func TestApprove_Validate(t *testing.T) {
	good := approve{plan: "hosts-0123456789abcdef", reason: "reviewed", expires: time.Hour}
	for name, c := range map[string]struct {
		change func(*approve)
		args   []string
		says   string
	}{
		"a Plan":              {func(*approve) {}, []string{"hosts"}, ""},
		"nothing":             {func(*approve) {}, nil, "name the FleetPolicy"},
		"both":                {func(a *approve) { a.source = "git" }, []string{"hosts"}, "omit POLICY"},
		"a commit":            {func(a *approve) { a.source = "git" }, nil, ""},
		"no reason":           {func(a *approve) { a.reason = " \t" }, []string{"hosts"}, "--reason is required"},
		"no time":             {func(a *approve) { a.expires = 0 }, []string{"hosts"}, "--expires 0s"},
		"a timeout of before": {func(a *approve) { a.timeout = -1 }, []string{"hosts"}, "--timeout -1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			a := good
			c.change(&a)
			if err := a.validate(c.args); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}
