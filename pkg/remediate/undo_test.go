package remediate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// dispatcher runs a dispatcher on a site's member and hub.
func (s *site) dispatcher(opts Options) *Dispatcher {
	s.Helper()
	opts.Clients, opts.Journal = s.access(), s.journal
	d, err := New(opts)
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

// TestWhatSomebodyAsksForIsTakenBackUnlessItMustNot: by the one who acts, unless all is
// stopped, whatever the policy says.
func TestWhatSomebodyAsksForIsTakenBackUnlessItMustNot(t *testing.T) {
	s := newSite(t)
	a := s.do(s.judged(s.create("ConfigMap", fmt.Sprintf(oneMap, "one")), patch(`{"data":{"a":"3"}}`)))
	if a.Phase != Succeeded {
		t.Fatal(a.Phase, a.Message)
	}
	var follows atomic.Bool
	follows.Store(true)
	d := s.dispatcher(Options{Lead: func() error {
		if follows.Load() {
			return errors.New("another process acts")
		}
		return nil
	}})
	refused := func(what string, want error, force bool) {
		t.Helper()
		before := text(s.get("ConfigMap", "one"))
		made, err := d.RollBack(t.Context(), a.Name, force, "a test")
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, %v, want %v", what, made, err, want)
		}
		if got := text(s.get("ConfigMap", "one")); got != before {
			t.Errorf("%s: written %s, was %s", what, got, before)
		}
	}
	refused("a follower", ErrNotNow, false)
	follows.Store(false)
	if _, err := d.RollBack(t.Context(), "nothing", false, ""); !errors.Is(err, ErrNoAction) {
		t.Errorf("an action that there is not: %v", err)
	}
	d.Stop("an incident")
	if got := d.Stopped(); got != "an incident" {
		t.Errorf("stopped %q", got)
	}
	refused("stopped", ErrNotNow, true)
	d.Resume()
	s.merge("ConfigMap", "one", `{"data":{"other":"x"}}`)
	if err := until(func() error { // until it has taken over
		if _, err := d.RollBack(t.Context(), a.Name, false, ""); !errors.Is(err, ErrChanged) {
			return err
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	refused("changed", ErrChanged, false)

	s.merge("ConfigMap", "one", `{"metadata":{"annotations":{"federator.dev/protect":"true"}}}`)
	if made, err := d.RollBack(t.Context(), a.Name, true, "a test"); err != nil || made.Phase != IsGuarded {
		t.Errorf("protected: %+v, %v", made, err)
	}
	s.merge("ConfigMap", "one", `{"metadata":{"annotations":{"federator.dev/protect":null}}}`)

	made, err := d.RollBack(t.Context(), a.Name, true, "ann: it was wrong")
	if err != nil || made.Phase != Succeeded {
		t.Fatalf("%+v, %v", made, err)
	}
	if known := s.recorded(made.Name); known.RollbackOf != a.Name || known.Reason != "ann: it was wrong" {
		t.Errorf("recorded %+v", known)
	}
	if known := s.recorded(a.Name); known.Phase != RolledBack || !strings.Contains(known.Message, made.Name) {
		t.Errorf("recorded %+v", known)
	}
	if d.mu.Lock(); len(d.busy) > 0 || len(d.ledger.writing) > 0 || len(d.ledger.written[s.binding]) != 1 {
		t.Errorf("busy %v, ledger %+v", d.busy, d.ledger)
	}
	d.mu.Unlock()
	refused("twice", ErrIrreversible, true)
}
