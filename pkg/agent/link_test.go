package agent_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/agent"
)

// TestLink_ARefusalIsNotForgotten: an agent that one process refuses asks it ever more seldom, says so once, and serves
// the other one meanwhile. When it is let in again it comes back by itself.
func TestLink_ARefusalIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		said := &warnings{Handler: slog.DiscardHandler, of: "connecting"}
		running.Go(func() { ok(t, s.run(ctx, &inMemory{}, said, agent.Options{Token: s.token()})) })
		time.Sleep(time.Minute) // of virtual time, as below
		if a, b := s.connections(addressA), s.connections(addressB); a != 2 || b != 2 {
			t.Fatalf("it has %d and %d connections, want one in use and one to spare", a, b)
		}
		s.refuse(addressA, http.StatusForbidden)
		time.Sleep(5 * time.Minute)
		before := s.dialed(addressA)
		time.Sleep(time.Hour)
		if n := s.dialed(addressA) - before; n > 124 || n < 59 { // delays are 30 s to 60 s, and twice it asks for another certificate
			t.Errorf("in an hour it has dialled %d times, want one in a minute to one in half a minute", n)
		}
		if n := said.count(); n > 1 {
			t.Errorf("it has said so %d times", n)
		}
		if s.connections(addressB) != 2 {
			t.Errorf("the other process has %d connections", s.connections(addressB))
		}
		s.refuse(addressA, 0)
		time.Sleep(2 * time.Minute)
		if s.connections(addressA) != 2 {
			t.Error("it does not come back")
		}
	})
}

// TestAgent_IsReadyWhileConnected to one of federator's processes at least.
func TestAgent_IsReadyWhileConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		s.away = true
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		token := s.token()
		running.Go(func() { ok(t, s.run(ctx, &inMemory{}, slog.DiscardHandler, agent.Options{Token: token})) })
		for _, step := range []struct {
			what   string
			change func()
			ready  bool
		}{
			{"nobody is there", func() {}, false},
			{"both are", func() { s.set(func() { s.away = false }) }, true},
			{"one refuses it", func() { s.refuse(addressA, http.StatusForbidden) }, true},
			{"nobody is there again", func() { s.set(func() { s.away = true }); s.cut() }, false},
		} {
			step.change()
			time.Sleep(time.Minute)
			if got := s.agent.Load().Ready(); got != step.ready {
				t.Errorf("%s: ready is %t", step.what, got)
			}
		}
	})
}
