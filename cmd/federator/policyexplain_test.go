package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/policy"
)

func TestExplainForPeople(t *testing.T) {
	dir, file := testPolicies(t), writeFile(t, "fleet.yaml", checkManifests+stolenHost)
	out, err := command(t, "policy", "explain", "--policies", dir, "-f", file, "fleet/us-1", "Ingress.networking.k8s.io", "default/stolen")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"fleet/us-1 Ingress.networking.k8s.io default/stolen, at revision ",
		"\ntest.hosts: One host, one member\n  verdict: Known, 1 violation\n    host a.example.com is also served from fleet/eu-1\n      details: {\"host\":\"a.example.com\"}\n",
		"   1   violation contains {\n",
		"claim.ref.member != input.ref.member\n",
		"\n    data.fleet.views[\"test.hosts\"].hosts[\"a.example.com\"]  ",
		"\n      fleet/eu-1 Ingress.networking.k8s.io default/web  resourceVersion 1, revision ",
		"\n      Ingress.networking.k8s.io of fleet/us-1 is Synced\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestExplainKeysAndMembers(t *testing.T) {
	membersPolicy := `# METADATA
# title: Names
# description: Of members.
# custom:
#   severity: low
#   kinds: ["Deployment.apps"]
#   subject: member
package test.members

violation contains {"msg": sprintf("%d members", [count(data.fleet.names)])} if input.member.name == "fleet/us-1"
`
	dir := policyTree(t, map[string]string{"images.rego": imagesPolicy, "members.rego": membersPolicy})
	file := writeFile(t, "fleet.yaml", checkManifests+skewedDeployment)
	for subject, want := range map[string]string{"key:nginx": "tags 1.27, 1.28", "fleet/us-1": "2 members"} {
		out, err := command(t, "policy", "explain", "-o", "json", "--policies", dir, "-f", file, subject)
		var x explanations
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(out, `"state": "Known"`, `"state": 0`)), &x); err != nil {
			t.Fatal(err)
		}
		if len(x.Verdicts) != 1 || len(x.Verdicts[0].Verdict.Violations) != 1 || x.Verdicts[0].Verdict.Violations[0].Msg != want || len(x.Verdicts[0].Lines) == 0 || len(x.Verdicts[0].Reads) == 0 {
			t.Errorf("%s: %s", subject, out)
		}
	}
}

func TestExplainSaysHowFreshClustersAre(t *testing.T) {
	members, kubeconfig := fleetOf(t, 1)
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}}
	if err := members[0].Create(web); err != nil {
		t.Fatal(err)
	}
	live := []string{"--policies", testPolicies(t), "--kubeconfig", kubeconfig, "--contexts", members[0].Name(), "--give-up-after", "2m"}
	member := "context/" + members[0].Name()
	out, err := command(t, append([]string{"policy", "explain", "--policy", "test.replicas", member + " Deployment.apps default/web"}, live...)...)
	if err != nil || !strings.Contains(out, "Deployment.apps of "+member+" is Synced, heard of ") || !strings.Contains(out, "test.replicas: Replicas") || strings.Contains(out, "test.images") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestSubjectsAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]string{
		"f/a Pod shop/web":   "f/a Pod shop/web",
		"f/a Node worker":    "f/a Node /worker",
		"f/a Node /worker":   "f/a Node /worker",
		"f/a":                "f/a",
		"key:a b":            `"a b"`,
		"f/a  Pod  shop/web": "f/a Pod shop/web",
	} {
		got, err := parseSubject(text)
		if err != nil || got.String() != want {
			t.Errorf("%q is %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "web", "f/a Pod", "f/a Pod shop/", "f/a Pod shop/web more", "a/b/c", "Pod shop/web f/a"} {
		if got, err := parseSubject(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func TestExplainRefusesBadInput(t *testing.T) {
	good := []string{"--policies", testPolicies(t), "-f", writeFile(t, "fleet.yaml", checkManifests)}
	for want, args := range map[string][]string{
		"is not text or json":             {"fleet/eu-1", "-o", "yaml"},
		"is not \"<member>":               {"web"},
		"there is no member":              {"fleet/absent"},
		"there is no object":              {"fleet/eu-1 Pod default/absent"},
		"none of the policies judges":     {"fleet/eu-1"},
		"neither a package nor a binding": {"fleet/eu-1", "--policy", "absent"},
	} {
		if out, err := command(t, append(append([]string{"policy", "explain"}, args...), good...)...); code(err) != exitUsage || out != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: exits with %d: %v, %q", args, code(err), err, out)
		}
	}
}

func TestDiffPrintsWhatAChangeOfPoliciesDoes(t *testing.T) {
	before := policyTree(t, map[string]string{"replicas.rego": replicasPolicy, "images.rego": imagesPolicy})
	after := policyTree(t, map[string]string{"replicas.rego": replicasPolicy, "hosts.rego": hostsPolicy})
	source := []string{"-f", writeFile(t, "fleet.yaml", checkManifests+stolenHost+skewedDeployment)}
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
	if _, err := run(before, after, "--exit-code"); code(err) != exitFindings {
		t.Errorf("with --exit-code: %v", err)
	}
	if out, err := run(before, before, "--exit-code"); err != nil || out != "0 added, 0 removed, 2 the same\n" {
		t.Errorf("no change: %q, %v", out, err)
	}
	stricter := writeFile(t, "stricter.yaml", "bindings:\n- name: test.replicas\n  package: test.replicas\n  parameters: {least: 4}\n")
	out, err = run(before, before, "--new-bindings", stricter, "-o", "json")
	var d reportDiff
	if err != nil || json.Unmarshal([]byte(out), &d) != nil || len(d.Added) != 2 || len(d.Removed) != 1 || d.Same != 1 {
		t.Errorf("stricter bindings: %v, %s", err, out)
	}
	out, err = run(before, before, "--old-bindings", stricter, "-o", "json")
	if err != nil || json.Unmarshal([]byte(out), &d) != nil || len(d.Added) != 1 || len(d.Removed) != 2 {
		t.Errorf("laxer bindings: %v, %s", err, out)
	}
	for _, args := range [][]string{{before, "absent"}, {before, after, "-o", "sarif"}, {before, after, "--old-bindings", "absent"}} {
		if out, err := run(args...); code(err) != exitUsage || out != "" {
			t.Errorf("%v: exits with %d: %v", args, code(err), err)
		}
	}
}

func TestBenchMeasuresAndCompares(t *testing.T) {
	source := []string{"--policies", testPolicies(t), "-f", writeFile(t, "fleet.yaml", checkManifests+stolenHost)}
	run := func(args ...string) (string, error) {
		return command(t, append(append([]string{"policy", "bench"}, args...), source...)...)
	}
	path := t.TempDir() + "/run.json"
	out, err := run("--count", "3", "--save", path)
	if err != nil || !strings.HasPrefix(out, "POLICY ") || !strings.Contains(out, "\ntest.hosts ") {
		t.Fatalf("%v: %s", err, out)
	}
	saved, err := loadMeasured(path)
	if err != nil || saved.Objects != 4 {
		t.Fatalf("%+v, %v", saved, err)
	}
	for name, want := range map[string]int{"test.hosts": 9, "test.replicas": 3, "test.images": 3} {
		p, ok := saved.policy(name)
		if !ok || p.Evaluations != want || p.Nanoseconds <= 0 || p.Allocations <= 0 || p.Bytes <= 0 || (p.Reads == 1) != (name == "test.hosts") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if out, err := run("--compare", path, "--factor", "1000"); err != nil || !strings.Contains(out, "NS BEFORE") {
		t.Errorf("compared: %v, %s", err, out)
	}
	for i := range saved.Policies {
		saved.Policies[i].Allocations = 1
	}
	if err := saved.save(path); err != nil {
		t.Fatal(err)
	}
	if out, err := run("--compare", path, "--factor", "2", "-o", "json"); code(err) != exitFindings || !strings.Contains(err.Error(), "test.hosts: ") || !strings.Contains(out, `"nsPerEvaluation"`) {
		t.Errorf("costs more: %v, %s", err, out)
	}
	for _, args := range [][]string{{"--count", "0"}, {"--factor", "0.5"}, {"--factor", "NaN"}, {"-o", "csv"}, {"--compare", "absent"}} {
		if out, err := run(args...); code(err) != exitUsage || out != "" {
			t.Errorf("%v: exits with %d: %v", args, code(err), err)
		}
	}
}

func TestTheLibraryIsWhatIsEvaluatedByDefault(t *testing.T) {
	r, err := checked(t, "-f", writeFile(t, "fleet.yaml", checkManifests), "--fail-on", "none")
	if err != nil || !slices.ContainsFunc(r.Policies, func(p reportPolicy) bool { return p.Name == "federator.security.privileged" }) ||
		!slices.ContainsFunc(r.Results, func(x result) bool { return x.Policy == "federator.security.run_as_non_root" }) {
		t.Errorf("%v: %+v", err, r)
	}
	for _, x := range r.Results {
		if x.State == policy.Error.String() {
			t.Errorf("%+v", x)
		}
	}
}
