package policytest_test

import (
	"os"
	"testing"

	"federator.dev/federator/pkg/policy/policytest"
)

// libraryCases is how many cases the suites of the library have.
const libraryCases = 65

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
		if c.Outcome != policytest.Passed {
			t.Errorf("%s: %s %s %v", c.ID, c.Outcome, c.Reason, c.Failures)
		}
	}
}
