package query

import (
	"path/filepath"
	"testing"

	"federator.dev/federator/test/clitest"
)

// sharedHosts is a query for hosts that more than one member serves.
const sharedHosts = `host := data.fleet.objects["Ingress.networking.k8s.io"][a][_][_].spec.rules[_].host; ` +
	`host == data.fleet.objects["Ingress.networking.k8s.io"][b][_][_].spec.rules[_].host; a < b`

func TestQuery_OverRealControlPlanes(t *testing.T) {
	members, kubeconfig := clitest.RealFleet(t, "one", "two")
	live := []string{"--kubeconfig", kubeconfig, "--contexts", "one,two", "--kinds", "Ingress.networking.k8s.io,Secret"}
	for i, manifest := range [][]byte{clitest.Ingress("web", "a.example.com"), clitest.Ingress("web", "b.example.com")} {
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
	if err := members[1].Apply(t.Context(), clitest.Ingress("stolen", "a.example.com")); err != nil {
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
