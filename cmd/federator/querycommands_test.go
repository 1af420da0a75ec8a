package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/internal/kubeconfigfile"
	"federator.dev/federator/test/clitest"
)

// serveTwoMembers runs a server over two members: the first has three ConfigMaps, of
// which a owns owned, the second has one.
func serveTwoMembers(t *testing.T) *running {
	t.Helper()
	members, kubeconfig := clitest.Fleet(t, 2)
	clitest.CreateConfigMaps(t, members[0], "a", "b")
	clitest.CreateConfigMaps(t, members[1], "c")
	a, err := members[0].Get(schema.GroupResource{Resource: "configmaps"}, "default", "a")
	if err != nil {
		t.Fatal(err)
	}
	owned := clitest.ConfigMap("owned")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: a.GetUID()}}
	if err := members[0].Create(owned); err != nil {
		t.Fatal(err)
	}
	r := start(t, "--kubeconfig", kubeconfig, "--contexts", "member-0,member-1", "--kinds", "ConfigMap")
	ready(t, r)
	return r
}

func TestQueryCommands_UseTheServer(t *testing.T) {
	r := serveTwoMembers(t)
	ask := func(args ...string) string {
		t.Helper()
		out, err := command(t, append(args, "--kubeconfig", r.kubeconfig)...)
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("%q: colours where there is no terminal: %q", args, out)
		}
		return out
	}
	for _, o := range []string{"table", "wide"} {
		out := ask("count", "configmaps", "--by", "member", "-o", o)
		if !strings.Contains(out, "context/member-0") || !strings.Contains(out, "context/member-1") || strings.Contains(out, "{") {
			t.Errorf("count -o %s:\n%s", o, out)
		}
	}
	var counted struct{ Total int }
	if err := json.Unmarshal([]byte(ask("count", "configmaps", "-o", "json")), &counted); err != nil || counted.Total != 4 {
		t.Errorf("count -o json: %+v, %v", counted, err)
	}
	if out := ask("count", "configmaps", "--field-selector", "metadata.name=c", "-o", "yaml"); !strings.Contains(out, "total: 1\n") {
		t.Errorf("count -o yaml:\n%s", out)
	}

	// The flat context gives the same answers: the commands understand members.
	if out := ask("count", "configmaps", "--context", "flat", "--by", "namespace", "-o", "json"); !strings.Contains(out, `"default"`) {
		t.Errorf("count --context flat:\n%s", out)
	}

	object := []string{"--member", "context/member-0", "-n", "default"}
	out := ask(append([]string{"tree", "configmaps", "a"}, object...)...)
	if want := "ConfigMap/default/a context/member-0\n└─ ConfigMap/default/owned owns\n"; out != want {
		t.Errorf("tree of the owner:\n%s\nwant\n%s", out, want)
	}
	out = ask(append([]string{"tree", "configmaps", "owned"}, object...)...)
	if want := "ConfigMap/default/owned context/member-0\n└─ ConfigMap/default/a owns it\n"; out != want {
		t.Errorf("tree of what is owned:\n%s\nwant\n%s", out, want)
	}

	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"__complete", "count", "--kubeconfig", r.kubeconfig, "co"}, "configmaps"},
		{[]string{"__complete", "tree", "--kubeconfig", r.kubeconfig, "--context", "flat", "-n", "default", "configmaps", ""}, "owned"},
		{[]string{"__complete", "tree", "--kubeconfig", r.kubeconfig, "--member", ""}, "context/member-1"},
		{[]string{"__complete", "tree", "--kubeconfig", r.kubeconfig, "-n", "default", "configmaps", ""}, "owned"},
		{[]string{"__complete", "tree", "--kubeconfig", r.kubeconfig, "configmaps", "a", "--kinds", ""}, "configmaps"},
	} {
		out, err := command(t, test.args...)
		if err != nil || !slices.Contains(strings.Split(out, "\n"), test.want) {
			t.Errorf("%q: %v, no %s in\n%s", test.args, err, test.want, out)
		}
	}

	for _, args := range [][]string{
		{"count", "nopes"},
		{"count", "configmaps", "--by", "colour"},
		{"tree", "configmaps", "a"},
		{"tree", "configmaps", "a", "--member", "context/member-0", "-n", "default", "--depth", "11"},
	} {
		_, err := command(t, append(args, "--kubeconfig", r.kubeconfig)...)
		if _, ok := errors.AsType[*apierrors.StatusError](err); !ok {
			t.Errorf("%q: %v is not a Status error", args, err)
		}
	}
}

func TestKubeconfig_HasAContextPerMember(t *testing.T) {
	r := serveTwoMembers(t)
	local, err := clientcmd.LoadFromFile(r.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cluster := local.Clusters[kubeconfigfile.FleetContext]
	ca := clitest.WriteFile(t, "ca.pem", string(cluster.CertificateAuthorityData))
	token := clitest.WriteFile(t, "token", local.AuthInfos[kubeconfigfile.FleetContext].Token+"\n")
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil { // as somebody may have left it
		t.Fatal(err)
	}
	server := strings.TrimSuffix(cluster.Server, "/fleet")
	if _, err := command(t, "kubeconfig", "--server", server, "--certificate-authority", ca, "--token-file", token, "-o", file); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	written, err := clientcmd.LoadFromFile(file)
	if err != nil || written.CurrentContext != kubeconfigfile.FleetContext || len(written.Contexts) != 4 {
		t.Fatalf("%+v, %v", written, err)
	}
	if got := written.Clusters["flat"]; got == nil || got.Server != server+"/flat" {
		t.Errorf("the flat context: %+v", got)
	}
	if got := written.Clusters["context/member-1"]; got == nil || got.Server != server+"/members/context/member-1" {
		t.Errorf("the second member: %+v", got)
	}
	if out, err := command(t, "count", "configmaps", "--kubeconfig", file); err != nil || !strings.Contains(out, "4") {
		t.Errorf("count with it: %v\n%s", err, out)
	}
	for _, args := range [][]string{
		{"--server", "http://x", "--token-file", token},
		{"--server", server},
		{"--server", server, "--token-file", token, "--service-account", "a/b"},
		{"--server", server, "--service-account", "nobody"},
		{"--token-file", token},
	} {
		if _, err := command(t, append([]string{"kubeconfig"}, args...)...); err == nil || !strings.Contains(err.Error(), "--") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestQueryCommands_FindTheLocalServer; without one, the error lists what was tried.
func TestQueryCommands_FindTheLocalServer(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	other := filepath.Join(home, "own")
	t.Setenv("KUBECONFIG", other)
	local, err := kubeconfigfile.Path("")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"count", "pods"}, {"tree", "pods", "a"}, {"violations"}, {"kubeconfig"}} {
		_, err := command(t, args...)
		if err == nil || !strings.Contains(err.Error(), local) || !strings.Contains(err.Error(), other) || !strings.Contains(err.Error(), `context "fleet"`) {
			t.Errorf("%v: %v", args, err)
		}
	}
	r := serveTwoMembers(t)
	// A current context that is of the query API is used, whatever it is called; one of a cluster is not.
	file, err := clientcmd.LoadFromFile(r.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	file.Contexts["mine"], file.CurrentContext = file.Contexts[kubeconfigfile.FleetContext], "mine"
	delete(file.Contexts, kubeconfigfile.FleetContext)
	if err := clientcmd.WriteToFile(*file, other); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "count", "configmaps"); err != nil || !strings.Contains(out, "4") {
		t.Errorf("by the current context: %v, %s", err, out)
	}
	fleet := file.Clusters[file.Contexts["mine"].Cluster]
	fleet.Server = strings.TrimSuffix(fleet.Server, "/fleet")
	if err := clientcmd.WriteToFile(*file, other); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, "count", "configmaps"); err == nil || !strings.Contains(err.Error(), "no query API found") {
		t.Errorf("by a current context that is a cluster's: %v", err)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(r.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(local), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(local, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{"4": {"count", "configmaps"}, "/members/context/member-0": {"kubeconfig"}} {
		if out, err := command(t, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %q, %v", args, out, err)
		}
	}
}
