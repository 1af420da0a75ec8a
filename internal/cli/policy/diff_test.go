package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"federator.dev/federator/internal/cli/report"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/test/clitest"
)

func TestDiff_ReportsAddedAndRemovedViolations(t *testing.T) {
	before := clitest.PolicyTree(t, map[string]string{"replicas.rego": clitest.ReplicasPolicy, "images.rego": clitest.ImagesPolicy})
	after := clitest.PolicyTree(t, map[string]string{"replicas.rego": clitest.ReplicasPolicy, "hosts.rego": clitest.HostsPolicy})
	source := []string{"-f", clitest.WriteFile(t, "fleet.yaml", clitest.Manifests+clitest.StolenHost+clitest.SkewedDeployment)}
	run := func(args ...string) (string, error) {
		return command(t, append(append([]string{"policy", "diff"}, args...), source...)...)
	}
	out, err := run(before, after)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+   Violation   high       test.hosts", "-   Violation   medium     test.images", "2 added, 1 removed, 1 the same"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if _, err := run(before, after, "--exit-code"); clitest.ExitCode(err) != exit.CodeFindings {
		t.Errorf("with --exit-code: %v", err)
	}
	if out, err := run(before, before, "--exit-code"); err != nil || out != "0 added, 0 removed, 2 the same\n" {
		t.Errorf("no change: %q, %v", out, err)
	}
	stricter := clitest.WriteFile(t, "stricter.yaml", "bindings:\n- name: test.replicas\n  package: test.replicas\n  parameters: {least: 4}\n")
	out, err = run(before, before, "--new-bindings", stricter, "-o", "json")
	var d report.Diff
	if err != nil || json.Unmarshal([]byte(out), &d) != nil || len(d.Added) != 2 || len(d.Removed) != 1 || d.Same != 1 {
		t.Errorf("stricter bindings: %v, %s", err, out)
	}
	out, err = run(before, before, "--old-bindings", stricter, "-o", "json")
	if err != nil || json.Unmarshal([]byte(out), &d) != nil || len(d.Added) != 1 || len(d.Removed) != 2 {
		t.Errorf("laxer bindings: %v, %s", err, out)
	}
	for _, args := range [][]string{{before, "absent"}, {before, after, "-o", "sarif"}, {before, after, "--old-bindings", "absent"}} {
		if out, err := run(args...); clitest.ExitCode(err) != exit.CodeUsage || out != "" {
			t.Errorf("%v: exits with %d: %v", args, clitest.ExitCode(err), err)
		}
	}
}
