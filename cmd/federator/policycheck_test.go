package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Policies of tests: about objects across members, about keys of a view, and about
// members.
const (
	hostsPolicy = `# METADATA
# title: One host, one member
# description: An Ingress host is served from one member only.
# custom:
#   severity: high
#   kinds: ["Ingress.networking.k8s.io"]
package test.hosts

view.hosts[host] contains true if {
	some rule in input.object.spec.rules
	host := rule.host
}

violation contains {
	"msg": sprintf("host %s is also served from %s", [rule.host, claim.ref.member]),
	"details": {"host": rule.host},
} if {
	some rule in input.object.spec.rules
	some claim in data.fleet.views["test.hosts"].hosts[rule.host]
	claim.ref.member != input.ref.member
}
`
	replicasPolicy = `# METADATA
# title: Replicas
# description: A Deployment has more than one replica.
# custom:
#   severity: low
#   kinds: ["Deployment.apps"]
#   remedies: [{action: patch, kind: Deployment.apps}]
#   parameters:
#     type: object
#     properties:
#       least: {type: integer, default: 2}
package test.replicas

violation contains {
	"msg": sprintf("%d replicas, fewer than %d", [n, input.parameters.least]),
	"remedy": {"action": "patch", "patch": {"spec": {"replicas": input.parameters.least}}},
} if {
	n := object.get(input.object.spec, "replicas", 1)
	n < input.parameters.least
}
`
	imagesPolicy = `# METADATA
# title: One tag
# description: An image runs with one tag in the fleet.
# custom:
#   severity: medium
#   kinds: ["Deployment.apps"]
#   subject: view.images
package test.images

view.images[name] contains tag if {
	some container in input.object.spec.template.spec.containers
	[name, tag] := split(container.image, ":")
}

violation contains {"msg": sprintf("tags %s", [concat(", ", sort(tags))])} if {
	tags := {entry.value | some entry in input.entries}
	count(tags) > 1
}
`
	checkManifests = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {federator.dev/member: fleet/eu-1}}
spec: {rules: [{host: a.example.com}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {federator.dev/member: fleet/us-1}}
spec: {rules: [{host: b.example.com}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {federator.dev/member: fleet/eu-1}}
spec: {replicas: 3, template: {spec: {containers: [{name: web, image: "nginx:1.27"}]}}}
`
	stolenHost = `---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: stolen, annotations: {federator.dev/member: fleet/us-1}}
spec: {rules: [{host: a.example.com}]}
`
	skewedDeployment = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {federator.dev/member: fleet/us-1}}
spec: {replicas: 1, template: {spec: {containers: [{name: web, image: "nginx:1.28"}]}}}
`
)

// policyTree writes policies to a directory, each as its name says.
func policyTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func testPolicies(t *testing.T) string {
	t.Helper()
	return policyTree(t, map[string]string{"hosts.rego": hostsPolicy, "replicas.rego": replicasPolicy, "images/images.rego": imagesPolicy})
}

// checked runs policy check with -o json.
func checked(t *testing.T, args ...string) (*report, error) {
	t.Helper()
	out, err := command(t, append([]string{"policy", "check", "-o", "json"}, args...)...)
	var r report
	if e := json.Unmarshal([]byte(out), &r); e != nil {
		t.Fatalf("%v: %v in %q", err, e, out)
	}
	return &r, err
}

func TestCheckOfACleanFleetFindsNothing(t *testing.T) {
	r, err := checked(t, "--policies", testPolicies(t), "-f", writeFile(t, "fleet.yaml", checkManifests))
	if err != nil || !r.Clean || len(r.Results) != 0 || len(r.Policies) != 3 || len(r.Members) != 2 {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	r, err := checked(t, "--policies", testPolicies(t), "-f", writeFile(t, "fleet.yaml", checkManifests+stolenHost+skewedDeployment))
	if err == nil || exitCode(err) != exitFindings {
		t.Errorf("%v exits with %d", err, exitCode(err))
	}
	var got []string
	for _, x := range r.Results {
		got = append(got, x.State+" "+x.Severity+" "+x.Subject.path()+" "+x.Message)
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

func TestCheckInEachFormat(t *testing.T) {
	args := []string{"policy", "check", "--fail-on", "none", "--policies", testPolicies(t), "-f", writeFile(t, "fleet.yaml", checkManifests+stolenHost)}
	table, err := command(t, args...)
	if err != nil || !strings.Contains(table, "2 violations, 0 exempt, 0 unknown, 0 errors") ||
		!strings.Contains(table, "Violation   high       test.hosts   fleet/us-1   Ingress.networking.k8s.io default/stolen") {
		t.Errorf("%v in\n%s", err, table)
	}
	sarif, err := command(t, append(args, "-o", "sarif")...)
	if err != nil {
		t.Fatal(err)
	}
	run := validateSARIF(t, sarif).Runs[0]
	if len(run.Results) != 2 || len(run.Tool.Driver.Rules) != 3 || !strings.HasSuffix(run.Results[0].Locations[0].Physical.Artifact.URI, "/hosts.rego") {
		t.Errorf("%s", sarif)
	}
	junit, err := command(t, append(args, "-o", "junit")...)
	var suites junitSuites
	if err != nil || xml.Unmarshal([]byte(junit), &suites) != nil || suites.Failures != 2 || suites.Tests != 4 {
		t.Errorf("%v in %s", err, junit)
	}
}

func TestCheckExitsBySeverity(t *testing.T) {
	dir := testPolicies(t)
	high := writeFile(t, "high.yaml", checkManifests+stolenHost)
	low := writeFile(t, "low.yaml", checkManifests+strings.ReplaceAll(skewedDeployment, "1.28", "1.27"))
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
		if got := code(err); got != c.want {
			t.Errorf("--fail-on %s of %s: %d (%v), want %d", c.failOn, filepath.Base(c.file), got, err, c.want)
		}
	}
}

func code(err error) int {
	if err == nil {
		return 0
	}
	return exitCode(err)
}

func TestCheckWithBindings(t *testing.T) {
	dir := testPolicies(t)
	file := writeFile(t, "fleet.yaml", checkManifests+stolenHost+skewedDeployment)
	bindings := writeFile(t, "bindings.yaml", `bindings:
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
	if code(err) != exitFindings {
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
	if r, err := checked(t, "--policies", dir, "-f", file, "--bindings", bindings, "--policy", "three", "--policy", "test.images"); code(err) != exitFindings || len(r.Results) != 2 || len(r.Policies) != 2 {
		t.Errorf("two policies: %v, %+v", err, r)
	}
}

func TestCheckSaysWhatItDoesNotKnow(t *testing.T) {
	dir := testPolicies(t)
	snapshot := filepath.Join(t.TempDir(), "fleet")
	if _, err := command(t, "snapshot", "-o", snapshot, "-f", writeFile(t, "fleet.yaml", checkManifests)); err != nil {
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
	if code(err) != exitUnknown || r.Clean {
		t.Errorf("%v exits with %d", err, code(err))
	}
	var got []string
	for _, x := range r.Results {
		got = append(got, x.State+" "+x.Policy+" "+x.Subject.String()+": "+x.Message)
	}
	want := []string{
		"Unknown test.hosts Ingress.networking.k8s.io default/web: Ingress.networking.k8s.io of fleet/eu-1 is Stale (gone)",
		"Unknown test.hosts Ingress.networking.k8s.io default/web: Ingress.networking.k8s.io of fleet/eu-1 is Stale (gone)",
		"Unknown test.images images[nginx]: Deployment.apps of fleet/us-1 is Forbidden (no list)",
		"Unknown test.images Member fleet/us-1: what is not seen is not judged: Deployment.apps of fleet/us-1 is Forbidden (no list)",
		"Unknown test.replicas Member fleet/us-1: what is not seen is not judged: Deployment.apps of fleet/us-1 is Forbidden (no list)",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := checked(t, "--policies", dir, "--snapshot", snapshot, "--allow-unknown"); err != nil {
		t.Errorf("with --allow-unknown: %v", err)
	}
	var out, errOut bytes.Buffer
	if err := execute(t.Context(), &out, &errOut, "policy", "check", "--policies", dir, "--snapshot", snapshot); code(err) != exitUnknown {
		t.Error(err)
	}
	if want := "member fleet/us-1: Deployment.apps is Forbidden (no list)"; !strings.Contains(errOut.String(), want) {
		t.Errorf("no %q in %q", want, errOut.String())
	}
}

func TestCheckCountsPoliciesThatFail(t *testing.T) {
	dir := policyTree(t, map[string]string{"p.rego": strings.Replace(replicasPolicy, "n < input.parameters.least", `to_number(input.object.metadata.name) < n`, 1)})
	r, err := checked(t, "--policies", dir, "-f", writeFile(t, "fleet.yaml", checkManifests+skewedDeployment))
	if code(err) != exitUnknown || len(r.Results) != 2 || r.Results[0].State != failed || !strings.Contains(r.Results[0].Message, "to_number") {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestCheckRefusesBadInput(t *testing.T) {
	dir, file := testPolicies(t), writeFile(t, "fleet.yaml", checkManifests)
	good := []string{"--policies", dir, "-f", file}
	for name, args := range map[string][]string{
		"a format":              append([]string{"-o", "xml"}, good...),
		"a severity":            append([]string{"--fail-on", "worst"}, good...),
		"a timeout":             append([]string{"--timeout", "0s"}, good...),
		"a policy":              append([]string{"--policy", "absent"}, good...),
		"bindings":              append([]string{"--bindings", writeFile(t, "b.yaml", "bindings:\n- name: x\n  package: absent\n")}, good...),
		"no bindings":           append([]string{"--bindings", "absent.yaml"}, good...),
		"two sources":           append([]string{"--snapshot", dir}, good...),
		"no source":             {"--policies", dir},
		"no directory":          {"--policies", "absent", "-f", file},
		"a file":                {"--policies", file, "-f", file},
		"no policies":           {"--policies", t.TempDir(), "-f", file},
		"a policy that is none": {"--policies", policyTree(t, map[string]string{"p.rego": "package x\n\np := 1\n"}), "-f", file},
		"no manifests":          {"--policies", dir, "-f", t.TempDir()},
	} {
		if out, err := command(t, append([]string{"policy", "check"}, args...)...); code(err) != exitUsage || out != "" {
			t.Errorf("%s: exits with %d: %v, %q", name, code(err), err, out)
		}
	}
}

func TestCheckWarnsOfPoliciesWithoutParameters(t *testing.T) {
	dir := policyTree(t, map[string]string{
		"hosts.rego":    hostsPolicy,
		"replicas.rego": strings.Replace(replicasPolicy, "{type: integer, default: 2}", "{type: integer}\n#     required: [least]", 1),
	})
	var out, errOut bytes.Buffer
	args := []string{"policy", "check", "--policies", dir, "-f", writeFile(t, "fleet.yaml", checkManifests)}
	if err := execute(t.Context(), &out, &errOut, args...); err != nil || !strings.Contains(errOut.String(), "test.replicas has no binding and is not evaluated") {
		t.Errorf("%v, %s", err, &errOut)
	}
	if err := execute(t.Context(), &out, &errOut, append(args, "--policy", "test.replicas")...); code(err) != exitUsage {
		t.Errorf("a policy that cannot be evaluated: %v", err)
	}
}
