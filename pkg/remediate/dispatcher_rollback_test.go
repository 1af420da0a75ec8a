package remediate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/planstore"
)

// dispatcher runs a dispatcher with the fixture's member and hub.
func (s *fixture) dispatcher(opts Options) *Dispatcher {
	s.Helper()
	opts.Clients, opts.Clock, opts.KeepSecretValues = s.clients(), time.Now, true
	d, err := newDispatcher(opts, s.journal, ownStates{hubStates{s.journal.hubClient}, s.binding}, planstore.Store{Hub: hubclient.Client{REST: s.journal.hub}})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); !errors.Is(err, context.Canceled) {
			s.Error(err)
		}
	})
	s.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return d
}

// TestDispatcher_RollBack: only the leader rolls back, unless all actions are stopped, and
// whatever the policy says.
func TestDispatcher_RollBack(t *testing.T) {
	s := newFixture(t)
	a := s.execute(s.intentFor(s.create("ConfigMap", fmt.Sprintf(oneMap, "one")), patch(`{"data":{"a":"3"}}`)))
	if a.Phase != v1alpha1.PhaseSucceeded {
		t.Fatal(a.Phase, a.Message)
	}
	var follows atomic.Bool
	follows.Store(true)
	d := s.dispatcher(Options{Lease: func() (time.Time, error) {
		if follows.Load() {
			return time.Time{}, errors.New("another process acts")
		}
		return time.Time{}, nil
	}})
	refused := func(what string, want error, force bool) {
		t.Helper()
		before := text(s.get("ConfigMap", "one"))
		made, err := d.RollBack(t.Context(), a.Name, RollbackRequest{Force: force, Reason: "a test"})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, %v, want %v", what, made, err, want)
		}
		if got := text(s.get("ConfigMap", "one")); got != before {
			t.Errorf("%s: written %s, was %s", what, got, before)
		}
	}
	refused("a follower", ErrNotNow, false)
	follows.Store(false)
	if _, err := d.RollBack(t.Context(), "nothing", RollbackRequest{}); !errors.Is(err, ErrNoAction) {
		t.Errorf("an action that there is not: %v", err)
	}
	d.SetStops(Stops{All: "an incident"})
	if got := d.Stopped(); got != "an incident" {
		t.Errorf("stopped %q", got)
	}
	refused("stopped", ErrNotNow, true)
	d.SetStops(Stops{})
	s.merge("ConfigMap", "one", `{"data":{"a":"x","other":"x"}}`)
	if err := until(func() error { // until it has taken over
		if _, err := d.RollBack(t.Context(), a.Name, RollbackRequest{}); !errors.Is(err, ErrChanged) {
			return err
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	refused("changed", ErrChanged, false)

	s.merge("ConfigMap", "one", `{"metadata":{"annotations":{"federator.dev/protect":"true"}}}`)
	if made, err := d.RollBack(t.Context(), a.Name, RollbackRequest{Force: true, Reason: "a test"}); err != nil || made.Phase != v1alpha1.PhaseProtected {
		t.Errorf("protected: %+v, %v", made, err)
	}
	s.merge("ConfigMap", "one", `{"metadata":{"annotations":{"federator.dev/protect":null}}}`)

	made, err := d.RollBack(t.Context(), a.Name, RollbackRequest{Force: true, Reason: "ann: it was wrong"})
	if err != nil || made.Phase != v1alpha1.PhaseSucceeded {
		t.Fatalf("%+v, %v", made, err)
	}
	if known := s.recorded(made.Name); known.RollbackOf != a.Name || known.Reason != "ann: it was wrong" {
		t.Errorf("recorded %+v", known)
	}
	if known := s.recorded(a.Name); known.Phase != v1alpha1.PhaseRolledBack || !strings.Contains(known.Message, made.Name) {
		t.Errorf("recorded %+v", known)
	}
	d.mu.Lock()
	if n := d.ledger.Fleet(s.binding, time.Hour).Targets; len(d.busy) > 0 || n < 1 {
		t.Errorf("busy %v, counted %d", d.busy, n)
	}
	d.mu.Unlock()
	refused("twice", ErrIrreversible, true)
}
