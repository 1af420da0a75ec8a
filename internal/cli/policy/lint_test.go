package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/internal/exit"
	"federator.dev/federator/test/clitest"
)

func TestLint_LocatesErrors(t *testing.T) {
	dir := clitest.PolicyTree(t, map[string]string{
		"a.rego":     strings.Replace(clitest.HostsPolicy, "severity: high", "severity: huge", 1),
		"sub/b.rego": strings.Replace(clitest.ReplicasPolicy, "severity: low", "severity: dire", 1),
	})
	out, err := command(t, "policy", "lint", dir)
	if clitest.ExitCode(err) != exit.CodeFindings {
		t.Errorf("%v exits with %d", err, clitest.ExitCode(err))
	}
	for _, want := range []string{dir + "/a.rego:", dir + "/sub/b.rego:", "error: ", "dire", "errors, 0 warnings"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestLint_WritesEachFormat(t *testing.T) {
	dir := clitest.Policies(t) // which have no tests
	out, err := command(t, "policy", "lint", dir)
	if err != nil || !strings.Contains(out, "hosts.rego:1:1: warning: package test.hosts has no test [no-tests]") {
		t.Errorf("%v:\n%s", err, out)
	}
	if out, err = command(t, "policy", "lint", "-o", "json", dir); err != nil {
		t.Error(err)
	}
	var got lintResult
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Errors != 0 || got.Warnings != 3 || len(got.Findings) != 3 || got.Findings[0].Line != 1 {
		t.Errorf("%v: %+v", err, got)
	}
	if out, err = command(t, "policy", "lint", "--strict", "-o", "sarif", dir); clitest.ExitCode(err) != exit.CodeFindings {
		t.Errorf("with --strict: %v", err)
	}
	run := clitest.SARIF(t, out).Runs[0]
	if len(run.Results) != 3 || len(run.Tool.Driver.Rules) != 1 || run.Results[0].Locations[0].Physical.Region.StartLine != 1 {
		t.Errorf("%s", out)
	}
}

func TestLint_ReportsNothingOnCleanPolicies(t *testing.T) {
	test := "package test.hosts_test\n\nimport data.test.hosts\n\ntest_hosts if hosts.violation == set()\n"
	dir := clitest.PolicyTree(t, map[string]string{"hosts.rego": clitest.HostsPolicy, "hosts_test.rego": test})
	if out, err := command(t, "policy", "lint", "--strict", dir); err != nil || out != "0 errors, 0 warnings\n" {
		t.Errorf("%v: %q", err, out)
	}
	out, err := command(t, "policy", "lint", "-o", "sarif", dir)
	if err != nil || len(clitest.SARIF(t, out).Runs[0].Results) != 0 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestLint_RejectsBadInput(t *testing.T) {
	for _, args := range [][]string{
		{filepath.Join(t.TempDir(), "absent")},
		{clitest.WriteFile(t, "p.rego", clitest.HostsPolicy)},
		{t.TempDir()},
		{"-o", "junit", clitest.Policies(t)},
	} {
		if out, err := command(t, append([]string{"policy", "lint"}, args...)...); clitest.ExitCode(err) != exit.CodeUsage || out != "" {
			t.Errorf("%v: exits with %d: %v, %q", args, clitest.ExitCode(err), err, out)
		}
	}
}

func TestLint_DoesNotFollowLinksOutOfTheDirectory(t *testing.T) {
	outside := clitest.WriteFile(t, "outside.rego", clitest.ReplicasPolicy)
	dir := clitest.PolicyTree(t, map[string]string{".held/hosts.rego": clitest.HostsPolicy}) // read only through the link
	if err := os.Symlink(filepath.Join(".held", "hosts.rego"), filepath.Join(dir, "within.rego")); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "policy", "lint", dir); err != nil || !strings.Contains(out, "package test.hosts has no test") {
		t.Errorf("a link that stays: %v, %s", err, out)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "outside.rego")); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, "policy", "lint", dir); clitest.ExitCode(err) != exit.CodeUsage || !strings.Contains(err.Error(), "outside.rego: path escapes") {
		t.Errorf("a link that leaves: %v", err)
	}
}
