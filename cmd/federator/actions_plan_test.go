package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/kubeconfigfile"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/remediate/plantest"
	"federator.dev/federator/test/clitest"
)

// planReaders may list ConfigMaps of all members, or nothing.
const planReaders = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: ann, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: bob, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: configmaps-of-the-fleet}
rules:
- {apiGroups: [members.federator.dev], resources: [configmaps], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ann-reads-configmaps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: configmaps-of-the-fleet}
subjects: [{kind: ServiceAccount, name: ann, namespace: default}]
`

// queryKubeconfig is the kubeconfig that a ServiceAccount of the hub reaches a server with.
func queryKubeconfig(t *testing.T, r *running, hubFile, account string) string {
	t.Helper()
	var out string
	clitest.Eventually(t, "the query API is served", func() (err error) {
		for _, m := range listening.FindAllStringSubmatch(r.log.String(), -1) {
			if m[1] == "query" {
				out, err = command(t, "kubeconfig", "--server", "https://"+m[2], "--hub-kubeconfig", hubFile,
					"--certificate-authority", r.kubeconfig+kubeconfigfile.AuthoritySuffix, "--service-account", "default/"+account)
				return err
			}
		}
		return clitest.ErrNotYet
	})
	return clitest.WriteFile(t, account+".kubeconfig", out)
}

// TestActionsPlan_ShowsWhatWouldBeWritten to a caller who may list it, from each of two replicas.
func TestActionsPlan_ShowsWhatWouldBeWritten(t *testing.T) {
	j := newJob(t)
	j.applyHub(planReaders)
	j.configMap("web-00")
	hubFile := clitest.WriteFile(t, "hub.kubeconfig", string(j.hub.Kubeconfig()))
	client, err := hub.NewRESTClient(j.hub.DirectRESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	cluster := metav1.PartialObjectMetadata{}
	clitest.Eventually(t, "the Cluster is there", func() error {
		body, err := client.Get().AbsPath("/apis/cluster.x-k8s.io/v1beta1/namespaces/fleet/clusters/eu-1").Do(t.Context()).Raw()
		return errors.Join(err, json.Unmarshal(body, &cluster))
	})
	configMaps := v1alpha1.PlanGroup{Member: "fleet/eu-1", MemberUID: string(cluster.UID), APIVersion: "v1", Kind: "ConfigMap", Verb: v1alpha1.Patch}
	for n := range 130 {
		configMaps.Targets = append(configMaps.Targets, v1alpha1.PlannedTarget{Namespace: "default", Name: fmt.Sprintf("web-%03d", n)})
	}
	configMaps.Targets[0].Diff = "- metadata.labels.tier: \"silver\"\n+ metadata.labels.tier: \"gold\""
	secrets := configMaps
	secrets.Kind, secrets.Targets = "Secret", []v1alpha1.PlannedTarget{{Namespace: "default", Name: "hidden-secret"}}
	plan, err := plantest.Create(t.Context(), client, v1alpha1.PlanSpec{Policy: "tier"}, v1alpha1.PlanStatus{Required: 2}, configMaps, secrets)
	if err != nil {
		t.Fatal(err)
	}
	over, err := plantest.Create(t.Context(), client, v1alpha1.PlanSpec{Policy: "tier", Purpose: v1alpha1.PlanDryRun}, v1alpha1.PlanStatus{State: v1alpha1.PlanSuperseded}, secrets)
	if err != nil {
		t.Fatal(err)
	}
	config := clitest.WriteFile(t, "federator.yaml", fmt.Sprintf(`
sources: {kubeconfig: %s, clusterAPI: {namespaces: [fleet]}}
network: {allow: [127.0.0.0/8]}
query: {priority: false}
policies: {hub: true}
`, hubFile))
	for replica := range 2 {
		r := start(t, "--config", config)
		ready(t, r)
		t.Run(fmt.Sprint("replica ", replica), func(t *testing.T) {
			showsPlans(t, queryKubeconfig(t, r, hubFile, "ann"), plan, over)
			out, err := command(t, "actions", "plan", "tier", "--kubeconfig", queryKubeconfig(t, r, hubFile, "bob"))
			if err != nil || !strings.Contains(out, "131, 131 hidden") || strings.Contains(out, "web-") || strings.Contains(out, "fleet/eu-1") {
				t.Errorf("to somebody else: %v\n%s", err, out)
			}
		})
	}
}

func showsPlans(t *testing.T, kubeconfig string, plan, over *v1alpha1.Plan) {
	ask := func(args ...string) (string, error) {
		return command(t, append([]string{"actions", "plan", "--kubeconfig", kubeconfig}, args...)...)
	}
	prints := func(want string, args ...string) {
		t.Helper()
		clitest.Eventually(t, "the member's kinds are known", func() error {
			out, err := ask(args...)
			if err == nil && !regexp.MustCompile(want).MatchString(out) {
				err = fmt.Errorf("%q: printed\n%swant %s", args, out, want)
			}
			return err
		})
	}
	prints(`(?s)^Plan: +`+plan.Name+`\nHash: +`+string(plan.Spec.Hash)+`\n.*Approvals: +0 of 2\nTargets: +131, 1 hidden.*`+
		`fleet/eu-1 +ConfigMap +patch +130\n.*web-000 .*web-099 .*\nConfigMap default/web-000 in fleet/eu-1:\n  - metadata.*\n  \+ metadata[^\n]*\n$`, "tier")
	prints(`(?s)web-129 .*UID|UID.*web-129 `, "tier", "--limit", "0", "-o", "wide")
	prints(`(?s)`+plan.Name+`.*`+over.Name+`|`+over.Name+`.*`+plan.Name, "tier", "--all")
	prints(`(?s)^Plan: +`+over.Name+`\n.*Targets: +1, 1 hidden`, "tier", "--plan", over.Name)
	for output, decode := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": func(b []byte, v any) error { return yaml.Unmarshal(b, v) }} {
		out, err := ask("tier", "-o", output)
		list := policyquery.PlanList{}
		if err := errors.Join(err, decode([]byte(out), &list)); err != nil || len(list.Items) != 130 || len(list.Plans) != 1 || list.Plans[0].Hash != string(plan.Spec.Hash) {
			t.Errorf("-o %s: %v\n%s", output, err, out)
		}
	}
	if out, err := ask("tier", "-o", "json", "--limit", "7"); err != nil || strings.Count(out, `"remedy"`) != 7 {
		t.Errorf("--limit 7: %v\n%s", err, out)
	}
	if out, err := ask("none"); err != nil || out != "" {
		t.Errorf("of another policy: %q, %v", out, err)
	}
	for _, args := range [][]string{{"A"}, {"tier", "--limit", "-1"}, {"tier", "-o", "name"}, {"tier", "--plan", "x", "--all"}, {}} {
		if out, err := ask(args...); err == nil {
			t.Errorf("%q: %s", args, out)
		}
	}
	if _, err := ask("A"); !apierrors.IsBadRequest(err) {
		t.Errorf("%v", err)
	}
}
