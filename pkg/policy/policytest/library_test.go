package policytest_test

import (
	"os"
	"testing"

	"federator.dev/federator/pkg/policy/policytest"
)

// libraryCases is how many cases the suites of the library have.
const libraryCases = 65

// awaitsDefaults are the cases that need the defaults of a template's parameters.
var awaitsDefaults = map[string]bool{"defaults/beyond": true, "namespace-owner/another": true, "namespace-owner/no-owner": true}

// TestSuites_LibraryOfGatekeepersForm requires of each case what gator verify finds.
func TestSuites_LibraryOfGatekeepersForm(t *testing.T) {
	t.Parallel()
	r, err := policytest.Run(t.Context(), os.DirFS("../../../test/gatekeeper/library"), policytest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Total != libraryCases {
		t.Errorf("%d cases, want %d", r.Total, libraryCases)
	}
	for _, c := range r.Cases {
		switch {
		case c.Outcome == policytest.Passed:
		case awaitsDefaults[c.Name]:
			t.Logf("%s: %s %v", c.ID, c.Outcome, c.Failures)
		default:
			t.Errorf("%s: %s %s %v", c.ID, c.Outcome, c.Reason, c.Failures)
		}
	}
}
