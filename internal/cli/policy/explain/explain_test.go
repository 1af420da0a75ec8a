package explain

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/internal/exit"
	"federator.dev/federator/test/clitest"
)

func TestExplain_WritesText(t *testing.T) {
	dir, file := clitest.Policies(t), clitest.WriteFile(t, "fleet.yaml", clitest.Manifests+clitest.StolenHost)
	out, err := command(t, "explain", "--policies", dir, "-f", file, "fleet/us-1", "Ingress.networking.k8s.io", "default/stolen")
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

func TestExplain_AcceptsKeysAndMembers(t *testing.T) {
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
	dir := clitest.PolicyTree(t, map[string]string{"images.rego": clitest.ImagesPolicy, "members.rego": membersPolicy})
	file := clitest.WriteFile(t, "fleet.yaml", clitest.Manifests+clitest.SkewedDeployment)
	for subject, want := range map[string]string{"key:nginx": "tags 1.27, 1.28", "fleet/us-1": "2 members"} {
		out, err := command(t, "explain", "-o", "json", "--policies", dir, "-f", file, subject)
		var x explanation
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

func TestExplain_ReportsFreshness(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 1)
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}}
	if err := members[0].Create(web); err != nil {
		t.Fatal(err)
	}
	live := []string{"--policies", clitest.Policies(t), "--kubeconfig", kubeconfig, "--contexts", members[0].Name(), "--give-up-after", "2m"}
	member := "context/" + members[0].Name()
	out, err := command(t, append([]string{"explain", "--policy", "test.replicas", member + " Deployment.apps default/web"}, live...)...)
	if err != nil || !strings.Contains(out, "Deployment.apps of "+member+" is Synced, last contact ") || !strings.Contains(out, "test.replicas: Replicas") || strings.Contains(out, "test.images") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestParseSubject_AcceptsAllForms(t *testing.T) {
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

func TestExplain_RejectsBadInput(t *testing.T) {
	good := []string{"--policies", clitest.Policies(t), "-f", clitest.WriteFile(t, "fleet.yaml", clitest.Manifests)}
	for want, args := range map[string][]string{
		"is not text or json":             {"fleet/eu-1", "-o", "yaml"},
		"is not \"<member>":               {"web"},
		"unknown member":                  {"fleet/absent"},
		"not found":                       {"fleet/eu-1 Pod default/absent"},
		"no policy evaluates":             {"fleet/eu-1"},
		"neither a package nor a binding": {"fleet/eu-1", "--policy", "absent"},
	} {
		if out, err := command(t, append(append([]string{"explain"}, args...), good...)...); clitest.ExitCode(err) != exit.CodeUsage || out != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: exits with %d: %v, %q", args, clitest.ExitCode(err), err, out)
		}
	}
}
