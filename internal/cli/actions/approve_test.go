package actions

import (
	"strings"
	"testing"
	"time"
)

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
