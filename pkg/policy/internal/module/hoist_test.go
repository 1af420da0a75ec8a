package module_test

import (
	"testing"

	"github.com/open-policy-agent/opa/v1/rego"
)

// TestLint_WarnsOfCallsHoistedOutOfNot is why lint warns of it: all of these negate
// what does not hold of an empty input.
func TestLint_WarnsOfCallsHoistedOutOfNot(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]bool{
		"not input.x.y": true, "not input.x.y == 1": true, "not helper": true, "not object.get(input, \"x\", 0) > 1": true,
		"not input.x.y > 1": false, "not startswith(input.x.y, \"a\")": false, "not \"a\" in input.x.y": false, "not input.x[input.y]": false, "not f(input.x)": false,
	} {
		policy := "package p\n\nholds if " + condition + "\n\nhelper if input.x.y > 1\n\nf(x) if x == 1\n"
		found, err := rego.New(rego.Query("data.p.holds"), rego.Module("p.rego", policy), rego.Input(map[string]any{})).Eval(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := len(found) == 1; got != want {
			t.Errorf("%s: %v, want %v", condition, got, want)
		}
	}
}
