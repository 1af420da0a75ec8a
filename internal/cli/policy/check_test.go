package policy

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/internal/cli/report"
	"federator.dev/federator/internal/cli/report/junit"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/clitest"
)

// checked runs policy check with -o json.
func checked(t *testing.T, args ...string) (*report.Report, error) {
	t.Helper()
	out, err := command(t, append([]string{"policy", "check", "-o", "json"}, args...)...)
	var r report.Report
	if e := json.Unmarshal([]byte(out), &r); e != nil {
		t.Fatalf("%v: %v in %q", err, e, out)
	}
	return &r, err
}

func TestCheck_ReportsNothingOnACleanFleet(t *testing.T) {
	r, err := checked(t, "--policies", clitest.Policies(t), "-f", clitest.WriteFile(t, "fleet.yaml", clitest.Manifests))
	if err != nil || !r.Clean || len(r.Results) != 0 || len(r.Policies) != 3 || len(r.Members) != 2 {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestCheck_ReportsViolations(t *testing.T) {
	r, err := checked(t, "--policies", clitest.Policies(t), "-f", clitest.WriteFile(t, "fleet.yaml", clitest.Manifests+clitest.StolenHost+clitest.SkewedDeployment))
	if err == nil || exit.Code(err) != exit.CodeFindings {
		t.Errorf("%v exits with %d", err, exit.Code(err))
	}
	var got []string
	for _, x := range r.Results {
		got = append(got, x.State+" "+x.Severity+" "+x.Subject.Path()+" "+x.Message)
	}
	want := []string{
		"Violation high fleet/eu-1/Ingress.networking.k8s.io/default/web host a.example.com is also served from fleet/us-1",
		"Violation high fleet/us-1/Ingress.networking.k8s.io/default/stolen host a.example.com is also served from fleet/eu-1",
		"Violation medium fleet/images/nginx tags 1.27, 1.28",
		"Violation low fleet/us-1/Deployment.apps/default/web 1 replicas, fewer than 2",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if x := r.Results[3]; !strings.Contains(string(x.Remedy), `"replicas":2`) && !strings.Contains(string(x.Remedy), `"replicas": 2`) {
		t.Errorf("the remedy: %s", x.Remedy)
	}
}

func TestCheck_WritesEachFormat(t *testing.T) {
	args := []string{"policy", "check", "--fail-on", "none", "--policies", clitest.Policies(t), "-f", clitest.WriteFile(t, "fleet.yaml", clitest.Manifests+clitest.StolenHost)}
	table, err := command(t, args...)
	if err != nil || !strings.Contains(table, "2 violations, 0 exempt, 0 unknown, 0 errors") ||
		!strings.Contains(table, "Violation   high       test.hosts   fleet/us-1   Ingress.networking.k8s.io default/stolen") {
		t.Errorf("%v in\n%s", err, table)
	}
	sarif, err := command(t, append(args, "-o", "sarif")...)
	if err != nil {
		t.Fatal(err)
	}
	run := clitest.SARIF(t, sarif).Runs[0]
	if len(run.Results) != 2 || len(run.Tool.Driver.Rules) != 3 || !strings.HasSuffix(run.Results[0].Locations[0].Physical.Artifact.URI, "/hosts.rego") {
		t.Errorf("%s", sarif)
	}
	text, err := command(t, append(args, "-o", "junit")...)
	var suites junit.Suites
	if err != nil || xml.Unmarshal([]byte(text), &suites) != nil || suites.Failures != 2 || suites.Tests != 4 {
		t.Errorf("%v in %s", err, text)
	}
}

func TestCheck_ExitsBySeverity(t *testing.T) {
	dir := clitest.Policies(t)
	high := clitest.WriteFile(t, "high.yaml", clitest.Manifests+clitest.StolenHost)
	low := clitest.WriteFile(t, "low.yaml", clitest.Manifests+strings.ReplaceAll(clitest.SkewedDeployment, "1.28", "1.27"))
	for _, c := range []struct {
		file, failOn string
		want         int
	}{
		{high, "low", 1},
		{high, "high", 1},
		{high, "critical", 0},
		{high, "none", 0},
		{low, "low", 1},
		{low, "medium", 0},
	} {
		_, err := command(t, "policy", "check", "--policies", dir, "-f", c.file, "--fail-on", c.failOn)
		if got := clitest.ExitCode(err); got != c.want {
			t.Errorf("--fail-on %s of %s: %d (%v), want %d", c.failOn, filepath.Base(c.file), got, err, c.want)
		}
	}
}

func TestCheck_AppliesBindings(t *testing.T) {
	dir := clitest.Policies(t)
	file := clitest.WriteFile(t, "fleet.yaml", clitest.Manifests+clitest.StolenHost+clitest.SkewedDeployment)
	bindings := clitest.WriteFile(t, "bindings.yaml", `bindings:
- name: three
  package: test.replicas
  parameters: {least: 3}
- name: hosts
  package: test.hosts
  exemptions:
  - {names: [stolen], reason: moving}
  - {names: [web], reason: over, expires: 2020-01-01T00:00:00Z}
`)
	r, err := checked(t, "--policies", dir, "-f", file, "--bindings", bindings)
	if clitest.ExitCode(err) != exit.CodeFindings {
		t.Error(err)
	}
	var got []string
	for _, x := range r.Results {
		got = append(got, x.State+" "+x.Binding+" "+x.Message+x.Reason)
	}
	want := []string{
		"Violation hosts host a.example.com is also served from fleet/us-1",
		"Violation test.images tags 1.27, 1.28",
		"Violation three 1 replicas, fewer than 3",
		"Exempt hosts host a.example.com is also served from fleet/eu-1moving",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r, err := checked(t, "--policies", dir, "-f", file, "--bindings", bindings, "--policy", "three", "--policy", "test.images"); clitest.ExitCode(err) != exit.CodeFindings || len(r.Results) != 2 || len(r.Policies) != 2 {
		t.Errorf("two policies: %v, %+v", err, r)
	}
}

func TestCheck_ReportsUnknownVerdicts(t *testing.T) {
	dir := clitest.Policies(t)
	snapshot := filepath.Join(t.TempDir(), "fleet")
	if _, err := command(t, "snapshot", "-o", snapshot, "-f", clitest.WriteFile(t, "fleet.yaml", clitest.Manifests)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(snapshot, "fleet.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// A member out of reach, and one that does not show its Deployments.
	text = bytes.Replace(text, []byte("reason: the manifests have none\n    state: NotServed"), []byte("reason: no list\n    state: Forbidden"), 1)
	text = bytes.Replace(text, []byte("kind: Ingress.networking.k8s.io\n    objects: 1\n    state: Synced"), []byte("kind: Ingress.networking.k8s.io\n    objects: 1\n    state: Stale\n    reason: gone"), 1)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := checked(t, "--policies", dir, "--snapshot", snapshot)
	if clitest.ExitCode(err) != exit.CodeUnknown || r.Clean {
		t.Errorf("%v exits with %d", err, clitest.ExitCode(err))
	}
	var got []string
	for _, x := range r.Results {
		got = append(got, x.State+" "+x.Policy+" "+x.Subject.String()+": "+x.Message)
	}
	want := []string{
		"Unknown test.hosts Ingress.networking.k8s.io default/web: Ingress.networking.k8s.io of fleet/eu-1 is Stale (gone)",
		"Unknown test.hosts Ingress.networking.k8s.io default/web: Ingress.networking.k8s.io of fleet/eu-1 is Stale (gone)",
		"Unknown test.images images[nginx]: Deployment.apps of fleet/us-1 is Forbidden (no list)",
		"Unknown test.images Member fleet/us-1: subjects may be missing: Deployment.apps of fleet/us-1 is Forbidden (no list)",
		"Unknown test.replicas Member fleet/us-1: subjects may be missing: Deployment.apps of fleet/us-1 is Forbidden (no list)",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := checked(t, "--policies", dir, "--snapshot", snapshot, "--allow-unknown"); err != nil {
		t.Errorf("with --allow-unknown: %v", err)
	}
	var out, errOut bytes.Buffer
	if err := execute(t.Context(), &out, &errOut, "policy", "check", "--policies", dir, "--snapshot", snapshot); clitest.ExitCode(err) != exit.CodeUnknown {
		t.Error(err)
	}
	if want := "member fleet/us-1: Deployment.apps is Forbidden (no list)"; !strings.Contains(errOut.String(), want) {
		t.Errorf("no %q in %q", want, errOut.String())
	}
}

func TestCheck_CountsFailedPolicies(t *testing.T) {
	dir := clitest.PolicyTree(t, map[string]string{"p.rego": strings.Replace(clitest.ReplicasPolicy, "n < input.parameters.least", `to_number(input.object.metadata.name) < n`, 1)})
	r, err := checked(t, "--policies", dir, "-f", clitest.WriteFile(t, "fleet.yaml", clitest.Manifests+clitest.SkewedDeployment))
	if clitest.ExitCode(err) != exit.CodeUnknown || len(r.Results) != 2 || r.Results[0].State != report.Error || !strings.Contains(r.Results[0].Message, "to_number") {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestCheck_RejectsBadInput(t *testing.T) {
	dir, file := clitest.Policies(t), clitest.WriteFile(t, "fleet.yaml", clitest.Manifests)
	good := []string{"--policies", dir, "-f", file}
	for name, args := range map[string][]string{
		"a format":              append([]string{"-o", "xml"}, good...),
		"a severity":            append([]string{"--fail-on", "worst"}, good...),
		"a timeout":             append([]string{"--timeout", "0s"}, good...),
		"a policy":              append([]string{"--policy", "absent"}, good...),
		"bindings":              append([]string{"--bindings", clitest.WriteFile(t, "b.yaml", "bindings:\n- name: x\n  package: absent\n")}, good...),
		"no bindings":           append([]string{"--bindings", "absent.yaml"}, good...),
		"two sources":           append([]string{"--snapshot", dir}, good...),
		"no source":             {"--policies", dir},
		"no directory":          {"--policies", "absent", "-f", file},
		"a file":                {"--policies", file, "-f", file},
		"no policies":           {"--policies", t.TempDir(), "-f", file},
		"a policy that is none": {"--policies", clitest.PolicyTree(t, map[string]string{"p.rego": "package x\n\np := 1\n"}), "-f", file},
		"no manifests":          {"--policies", dir, "-f", t.TempDir()},
	} {
		if out, err := command(t, append([]string{"policy", "check"}, args...)...); clitest.ExitCode(err) != exit.CodeUsage || out != "" {
			t.Errorf("%s: exits with %d: %v, %q", name, clitest.ExitCode(err), err, out)
		}
	}
}

func TestCheck_WarnsOfMissingParameters(t *testing.T) {
	dir := clitest.PolicyTree(t, map[string]string{
		"hosts.rego":    clitest.HostsPolicy,
		"replicas.rego": strings.Replace(clitest.ReplicasPolicy, "{type: integer, default: 2}", "{type: integer}\n#     required: [least]", 1),
	})
	var out, errOut bytes.Buffer
	args := []string{"policy", "check", "--policies", dir, "-f", clitest.WriteFile(t, "fleet.yaml", clitest.Manifests)}
	if err := execute(t.Context(), &out, &errOut, args...); err != nil || !strings.Contains(errOut.String(), "test.replicas has no binding and is not evaluated") {
		t.Errorf("%v, %s", err, &errOut)
	}
	if err := execute(t.Context(), &out, &errOut, append(args, "--policy", "test.replicas")...); clitest.ExitCode(err) != exit.CodeUsage {
		t.Errorf("a policy that cannot be evaluated: %v", err)
	}
}

func TestCheck_EvaluatesTheLibraryByDefault(t *testing.T) {
	r, err := checked(t, "-f", clitest.WriteFile(t, "fleet.yaml", clitest.Manifests), "--fail-on", "none")
	if err != nil || !slices.ContainsFunc(r.Policies, func(p report.Policy) bool { return p.Name == "federator.security.privileged" }) ||
		!slices.ContainsFunc(r.Results, func(x report.Result) bool { return x.Policy == "federator.security.run_as_non_root" }) {
		t.Errorf("%v: %+v", err, r)
	}
	for _, x := range r.Results {
		if x.State == policy.Error.String() {
			t.Errorf("%+v", x)
		}
	}
}
