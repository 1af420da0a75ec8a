package policy

import (
	"bytes"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/internal/cli/report"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/kube"
)

func deployment(name string, replicas int, image string) []byte {
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{
			"replicas": replicas, "selector": map[string]any{"matchLabels": map[string]any{"app": name}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": name}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": name, "image": image}}},
			},
		},
	})
	if err != nil {
		panic(err) // it is plain JSON
	}
	return manifest
}

func TestCheck_StopsWaitingAtTheTimeout(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // which nobody answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	_, path := clitest.Fleet(t, 1)
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + silent.Addr().String()
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	_, err = command(t, "policy", "check", "--policies", clitest.Policies(t), "--kubeconfig", path, "--contexts", "member-0", "--timeout", "100ms")
	if clitest.ExitCode(err) != exit.CodeUsage || !strings.Contains(err.Error(), "no member was reached") {
		t.Errorf("%v exits with %d", err, clitest.ExitCode(err))
	}
}

func TestCheck_ReportsAForbiddenKind(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 2)
	members[1].Forbid(schema.GroupResource{Group: "apps", Resource: "deployments"})
	var out, errOut bytes.Buffer
	err := execute(t.Context(), &out, &errOut, "policy", "check", "-o", "json", "--policies", clitest.Policies(t), "--policy", "test.replicas",
		"--kubeconfig", kubeconfig, "--contexts", members[0].Name()+","+members[1].Name(), "--give-up-after", "2m")
	var r report.Report
	if e := json.Unmarshal(out.Bytes(), &r); e != nil || clitest.ExitCode(err) != exit.CodeUnknown || len(r.Results) != 1 || r.Results[0].Subject.Member != "context/"+members[1].Name() {
		t.Errorf("%v: %s", err, &out)
	}
	if want := "member context/" + members[1].Name() + ": Deployment.apps is Forbidden ("; !strings.Contains(errOut.String(), want) {
		t.Errorf("no %q in %q", want, &errOut)
	}
}

func TestCheck_ReportsARefusedMember(t *testing.T) {
	_, path := clitest.Fleet(t, 1)
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts["plugin"] = &clientcmdapi.Context{Cluster: config.Contexts["member-0"].Cluster, AuthInfo: "plugin"}
	config.AuthInfos["plugin"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		Command: "/bin/false", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never",
	}}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	r, err := checked(t, "--policies", clitest.Policies(t), "--policy", "test.replicas", "--kubeconfig", path, "--contexts", "member-0,plugin", "--give-up-after", "15s")
	if clitest.ExitCode(err) != exit.CodeUnknown || len(r.Results) != 1 || r.Results[0].Subject.Member != "context/plugin" ||
		!strings.Contains(r.Results[0].Message, "Deployment.apps of context/plugin is Unknown (ExecPlugin") {
		t.Errorf("%v: %+v", err, r)
	}
}

// pinnedPolicy reads a field that only version v1 has; servers prefer v2.
const pinnedPolicy = `# METADATA
# title: Targets
# description: An autoscaler aims at less than 90 %.
# custom:
#   severity: medium
#   kinds: ["HorizontalPodAutoscaler.v1.autoscaling"]
package test.targets

violation contains {"msg": sprintf("aims at %d %%", [percent])} if {
	percent := input.object.spec.targetCPUUtilizationPercentage
	percent >= 90
}
`

const autoscaler = `apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default}
spec: {maxReplicas: 3, targetCPUUtilizationPercentage: 95, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
`

func TestCheck_ReadsClustersOfAHub(t *testing.T) {
	f := kube.StartTest(t, kube.Options{Members: 1})
	m := f.Members[0]
	if err := f.Hub.Register(t.Context(), kube.Cluster{Namespace: "fleet", Name: "eu-1", Labels: map[string]string{"env": "prod"}, Kubeconfig: m.Kubeconfig()}); err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(t.Context(), deployment("single", 1, "nginx:1.28")); err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(t.Context(), []byte(autoscaler)); err != nil {
		t.Fatal(err)
	}
	bindings := clitest.WriteFile(t, "bindings.yaml", "bindings:\n- {name: prod, package: test.replicas, members: {labels: {matchLabels: {env: prod}}}}\n")
	hub := clitest.WriteFile(t, "hub.kubeconfig", string(f.Hub.Kubeconfig()))
	live := []string{
		"--hub", "--hub-kubeconfig", hub, "--config", clitest.WriteFile(t, "federator.yaml", "network: {allow: [127.0.0.0/8]}\n"), "--give-up-after", "2m",
	}
	r, err := checked(t, append([]string{"--policies", clitest.Policies(t), "--bindings", bindings, "--policy", "prod"}, live...)...)
	if clitest.ExitCode(err) != exit.CodeFindings || len(r.Results) != 1 || r.Results[0].Subject.Path() != "fleet/eu-1/Deployment.apps/default/single" {
		t.Errorf("%v: %+v", err, r)
	}

	// Objects are held at the version that a policy pins.
	r, err = checked(t, append([]string{"--policies", clitest.PolicyTree(t, map[string]string{"targets.rego": pinnedPolicy})}, live...)...)
	if clitest.ExitCode(err) != exit.CodeFindings || len(r.Results) != 1 || r.Results[0].Message != "aims at 95 %" {
		t.Errorf("a pinned version: %v: %+v", err, r)
	}
}
