package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/sim"
)

// specs is a source whose members are always the same.
type specs []clusterinformers.Spec

func (s specs) Run(ctx context.Context, set func(clusterinformers.View)) error {
	set(clusterinformers.View{Members: s})
	<-ctx.Done()
	return nil
}

// simulated is a federator over simulated members, with a query API for users
// of a real hub.
type simulated struct {
	fleet *sim.Fleet
	names []string // as the members are known
	fed   *federator
	api   *queries
}

// newSimulated starts members that name gives <namespace>/<name>, which prepare
// fills before anybody watches them. The test's end ends it all.
func newSimulated(t *testing.T, members int, name func(int) string, labels func(int) []aggregate.Label, prepare func(i int, m *sim.Member), change func(*queryapi.Options)) *simulated {
	t.Helper()
	hub, err := shared.hub()
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := sim.New(sim.Options{Members: members})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Close)
	s := &simulated{fleet: fleet}
	var source specs
	for i, m := range fleet.Members() {
		prepare(i, m)
		kubeconfig, err := m.Kubeconfig()
		if err != nil {
			t.Fatal(err)
		}
		spec := clusterinformers.Spec{Name: name(i), UID: fmt.Sprintf("uid-%d", i), Kubeconfig: kubeconfig, Trusted: true}
		if labels != nil {
			spec.Labels = labels(i)
		}
		source, s.names = append(source, spec), append(s.names, spec.Name)
	}
	s.fed, err = startFederator(config{}, func(*slog.Logger) ([]clusterinformers.Source, error) {
		return []clusterinformers.Source{source}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.fed.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("what was logged:\n%s", tail(s.fed.log.String(), 60))
		}
	})
	if s.api, err = serveQueries(s.fed, hub, t.TempDir(), change); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.api.stop(); err != nil {
			t.Error(err)
		}
	})
	err = until(t.Context(), patience, func() error {
		if ok, waiting := s.fed.manager.Ready(); !ok {
			return fmt.Errorf("waiting for %v", waiting)
		}
		for _, m := range s.fed.manager.Members() {
			if !m.Synced {
				return fmt.Errorf("%s has not synced", m.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
