package sim_test

import (
	"testing"

	"go.uber.org/goleak"

	"federator.dev/federator/test/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, opts sim.Options) *sim.Fleet {
	t.Helper()
	fleet, err := sim.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Close)
	return fleet
}

func TestContract_OfTheSimulation(t *testing.T) {
	contract(t, start(t, sim.Options{Members: 1}).Members()[0].RESTConfig())
}
