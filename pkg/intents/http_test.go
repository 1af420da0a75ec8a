package intents_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// TestReceiver_ReadsOverHTTP2, with intents that take more than a line.
func TestReceiver_ReadsOverHTTP2(t *testing.T) {
	newSender := func(id string) *intents.Sender {
		s, err := intents.NewSender(intents.SenderOptions{Self: id, Epoch: "1", Protected: (&recorder{}).Protected})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	own, other := newSender("a"), newSender("b")
	var proto atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proto.Store(r.Proto)
		other.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	fleet := &intents.Fleet{
		Self: "a", Processes: []string{"a", "b"}, Members: map[string]intents.Member{"m": {Judge: "b"}},
		Peers: map[string]intents.Peer{"b": {ID: "b", URL: server.URL, Client: client}},
	}
	actor := newRecorder()
	receiver, err := intents.NewReceiver(intents.ReceiverOptions{
		Self: own, Actor: actor, Lease: func() (time.Time, error) { return time.Time{}, nil }, Fleet: func() *intents.Fleet { return fleet },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := receiver.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	list := make([]remediate.Intent, 3000)
	for n := range list {
		at := target("m", string(rune('a'+n%26))+time.Duration(n).String())
		list[n] = remediate.Intent{Subject: policy.Subject{Ref: at}, Remedy: policy.Remedy{Action: "patch", Target: at, Patch: make([]byte, 1000)}}
	}
	nobody := func(func(aggregate.Member) bool) {}
	m := func(yield func(aggregate.Member) bool) { yield(aggregate.Member{Name: "m"}) }
	began := time.Now()
	for _, err := range []error{own.SetIntents(thePolicy, remediate.RolloutSpec{}, remediate.Totals{}, nil, true), other.SetIntents(thePolicy, remediate.RolloutSpec{}, remediate.Totals{}, list, true)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	own.Evaluated(nobody, "")
	other.Evaluated(m, "")
	arrived := func() bool {
		actor.mu.Lock()
		defer actor.mu.Unlock()
		return actor.policies[thePolicy] != nil && actor.policies[thePolicy].ready
	}
	for !arrived() && time.Since(began) < 20*time.Second {
		time.Sleep(5 * time.Millisecond) // a condition
	}
	actor.mu.Lock()
	defer actor.mu.Unlock()
	if p := actor.policies[thePolicy]; p == nil || len(p.intents) != len(list) {
		t.Errorf("%d intents did not arrive: %s", len(list), receiver.Incomplete(thePolicy))
	}
	if proto.Load() != "HTTP/2.0" {
		t.Errorf("by %v", proto.Load())
	}
	t.Logf("%d intents of 1 KB took %v", len(list), time.Since(began))
}
