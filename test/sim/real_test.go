package sim_test

import (
	"testing"

	"federator.dev/federator/test/kube"
)

// What the contract asserts of the simulation must be what a real server does.
func TestContract_OfKubeAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: starts a real control plane")
	}
	fleet, err := kube.Start(t.Context(), kube.Options{Members: 1, NoHub: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			fleet.WriteLogs(t.Output())
		}
		if err := fleet.Stop(); err != nil {
			t.Error(err)
		}
	})
	contract(t, fleet.Members[0].RESTConfig())
}
