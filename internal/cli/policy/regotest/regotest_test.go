package regotest

import (
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"

	"federator.dev/federator/internal/cli/report/junit"
	"federator.dev/federator/test/clitest"
)

func TestRun_Passes(t *testing.T) {
	dir := clitest.PolicyTree(t, clitest.OwnedPolicy)
	out, err := command(t, "test", dir)
	if err != nil || !strings.Contains(out, "SKIP  "+dir+"/tenancy/owner/owner_test.rego:12  todo_test_teams") ||
		!strings.Contains(out, "3 tests: 2 passed, 0 failed, 0 errors, 1 skipped, in ") || strings.Contains(out, "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = command(t, "test", "-v", dir, "--run", "nobody|namespaces")
	if err != nil || strings.Count(out, "PASS  ") != 2 || strings.Contains(out, "SKIP") || !strings.Contains(out, "    printed:\n      evaluating <undefined>\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestRun_ReportsFailures(t *testing.T) {
	for name, c := range map[string]struct {
		file, old, with string
		want            []string
		summary         string
	}{
		"a Rego test": {
			"tenancy/owner/owner_test.rego", "== 1 with", "== 3 with",
			[]string{"FAIL  ", "owner_test.rego:7  test_nobody", "owner_test.rego:9: false or undefined: count(owner.violation) == 3"},
			"1 test failed",
		},
		"an error of a builtin": {
			"tenancy/owner/owner.rego", `not input.ref.name in input.parameters.exempt`, `to_number(input.ref.name) < 3`,
			[]string{"ERROR  ", "test_nobody", "owner.rego:25: eval_builtin_error: to_number: "},
			"1 test failed; 1 test could not be evaluated",
		},
		"a fixture": {
			"tenancy/owner/owner_fleet.yaml", "there is no owner", "\"no\\eowner\"",
			[]string{
				"FAIL  ", "owner_fleet.yaml:1  two namespaces",
				"owner_fleet.yaml:8: a verdict is not as expected: fleet/a Namespace /shop of federator.tenancy.owner\n",
				"    expected: Known with \"no\\x1bowner\"\n    found:    Known with \"there is no owner\"\n",
			},
			"1 test failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := command(t, "test", clitest.OwnedPolicyWith(t, c.file, c.old, c.with))
			if clitest.ExitCode(err) != 1 || err.Error() != c.summary {
				t.Errorf("error %v, code %d, want %q and 1", err, clitest.ExitCode(err), c.summary)
			}
			for _, s := range c.want {
				if !strings.Contains(out, s) {
					t.Errorf("output\n%s\ndoes not say %q", out, s)
				}
			}
		})
	}
}

func TestRun_RejectsBadInput(t *testing.T) {
	dir := clitest.PolicyTree(t, clitest.OwnedPolicy)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "requires at least 1 arg"},
		{[]string{dir + "/none"}, "no such file"},
		{[]string{dir + "/tenancy/owner/owner.rego"}, "not a directory"},
		{[]string{dir, "-o", "sarif"}, `--output "sarif" is not table, json, junit`},
		{[]string{dir, "--run", "("}, "--run: "},
		{[]string{dir, "--run", "none of them"}, `no test matches --run "none of them"`},
		{[]string{dir, "--threshold", "101"}, "--threshold 101 is not a percentage"},
		{[]string{dir, "--timeout", "0s"}, "--timeout must be positive"},
		{[]string{dir, "--seed", "0"}, "--seed must be positive"},
		{[]string{t.TempDir()}, "no tests"},
		{[]string{clitest.OwnedPolicyWith(t, "tenancy/owner/owner_fleet.yaml", "expect:", "expected:")}, "tenancy/owner/owner_fleet.yaml:7:1: error: expected is not known"},
		{[]string{clitest.OwnedPolicyWith(t, "tenancy/owner/owner.rego", "some team in", "some team in in")}, "tenancy/owner/owner.rego:33:"},
	} {
		out, err := command(t, append([]string{"test"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" || (c.args != nil && clitest.ExitCode(err) != 2) {
			t.Errorf("policy test %q: %v, code %d, %q; want %q and 2", c.args, err, clitest.ExitCode(err), out, c.want)
		}
	}
	out, err := command(t, "test", "--allow-empty", t.TempDir())
	if err != nil || !strings.HasPrefix(out, "0 tests: ") {
		t.Errorf("a directory without tests, allowed: %v\n%s", err, out)
	}
}

func TestRun_MeasuresCoverage(t *testing.T) {
	dir := clitest.PolicyTree(t, clitest.OwnedPolicy)
	out, err := command(t, "test", dir, "--coverage")
	if err != nil || !strings.Contains(out, "FILE ") || !strings.Contains(out, "29,32-33\n") {
		t.Errorf("%v\n%s", err, out)
	}
	for threshold, want := range map[string]int{"40": 0, "99.5": 1} {
		if _, err := command(t, "test", dir, dir, "--threshold", threshold); clitest.ExitCode(err) != want {
			t.Errorf("threshold %s: %v, want code %d", threshold, err, want)
		}
	}
}

func TestResults_AsJSON(t *testing.T) {
	out, err := command(t, "test", "-o", "json", "--coverage", "--seed", "9", clitest.PolicyTree(t, clitest.OwnedPolicy))
	var r struct {
		Passed, Failed, Errors, Skipped int
		Seed                            uint64
		Cases                           []struct {
			Name, Outcome, Output string
			Fleet                 bool
		}
		Coverage struct {
			Lines, Covered int
			Percent        float64
			Files          []struct{ Missed []int }
		}
	}
	if jsonErr := json.Unmarshal([]byte(out), &r); err != nil || jsonErr != nil {
		t.Fatal(err, jsonErr)
	}
	c := r.Coverage
	if r.Passed != 2 || r.Skipped != 1 || r.Failed+r.Errors != 0 || r.Seed != 9 || len(r.Cases) != 3 || r.Cases[0].Outcome != "pass" || !r.Cases[0].Fleet ||
		len(c.Files) != 1 || c.Lines == 0 || c.Covered == 0 || c.Percent != 100*float64(c.Covered)/float64(c.Lines) || len(c.Files[0].Missed) != c.Lines-c.Covered {
		t.Errorf("%s", out)
	}
}

func TestResults_AsJUnit(t *testing.T) {
	out, err := command(t, "test", "-o", "junit", clitest.OwnedPolicyWith(t, "tenancy/owner/owner_fleet.yaml", "there is no owner", "<nobody> & \"you\""))
	if clitest.ExitCode(err) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	var suites junit.Suites
	if err := xml.Unmarshal([]byte(out), &suites); err != nil {
		t.Fatal(err)
	}
	if suites.Tests != 3 || suites.Failures != 1 || suites.Skipped != 1 || suites.Errors != 0 || len(suites.Suites) != 2 {
		t.Fatalf("%s", out)
	}
	fleet, rego := suites.Suites[0].Cases, suites.Suites[1].Cases
	if len(fleet) != 1 || fleet[0].Failure == nil || !strings.Contains(fleet[0].Failure.Text, `expected: Known with "<nobody> & \"you\""`) ||
		!strings.HasPrefix(fleet[0].Time, "0.") || len(rego) != 2 || rego[0].Failure != nil || rego[0].SystemOut != "evaluating <undefined>\n" || rego[1].Skipped == nil {
		t.Errorf("%s", out)
	}
}
