package main

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/test/kube"
)

// realFleet starts real control planes and returns them with a kubeconfig of a
// context for each: one, two, …
func realFleet(t *testing.T, names ...string) (members []*kube.ControlPlane, kubeconfig string) {
	t.Helper()
	f := kube.StartTest(t, kube.Options{NoHub: true, Members: len(names)})
	merged := clientcmdapi.NewConfig()
	for i, m := range f.Members {
		c, err := clientcmd.Load(m.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		current := c.Contexts[c.CurrentContext]
		merged.Clusters[names[i]] = c.Clusters[current.Cluster]
		merged.AuthInfos[names[i]] = c.AuthInfos[current.AuthInfo]
		merged.Contexts[names[i]] = &clientcmdapi.Context{Cluster: names[i], AuthInfo: names[i]}
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*merged, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return f.Members, kubeconfig
}

// ingress is a manifest of one host.
func ingress(name, host string) []byte {
	return []byte(strings.NewReplacer("NAME", name, "HOST", host).Replace(`apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: NAME, namespace: default}
spec:
  rules:
  - host: HOST
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`))
}

// sharedHosts is a query for hosts that more than one member serves.
const sharedHosts = `host := data.fleet.objects["Ingress.networking.k8s.io"][a][_][_].spec.rules[_].host; ` +
	`host == data.fleet.objects["Ingress.networking.k8s.io"][b][_][_].spec.rules[_].host; a < b`

func TestQueryOfTwoRealControlPlanes(t *testing.T) {
	members, kubeconfig := realFleet(t, "one", "two")
	live := []string{"--kubeconfig", kubeconfig, "--contexts", "one,two", "--kinds", "Ingress.networking.k8s.io,Secret"}
	for i, manifest := range [][]byte{ingress("web", "a.example.com"), ingress("web", "b.example.com")} {
		if err := members[i].Apply(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := command(t, append([]string{"query", sharedHosts}, live...)...); err != nil || out != "undefined\n" {
		t.Fatalf("before hosts are shared: %q, %v", out, err)
	}
	before := filepath.Join(t.TempDir(), "before")
	if _, err := command(t, append([]string{"snapshot", "-o", before}, live...)...); err != nil {
		t.Fatal(err)
	}
	if err := members[1].Apply(t.Context(), ingress("stolen", "a.example.com")); err != nil {
		t.Fatal(err)
	}
	want := "a             b             host\ncontext/one   context/two   a.example.com\n"
	if out, err := command(t, append([]string{"query", sharedHosts}, live...)...); err != nil || out != want {
		t.Errorf("a shared host: %q, %v, want %q", out, err, want)
	}
	if out, err := command(t, "query", "--snapshot", before, sharedHosts); err != nil || out != "undefined\n" {
		t.Errorf("the snapshot from before: %q, %v", out, err)
	}
}
