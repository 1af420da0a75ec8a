package sharing

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"federator.dev/federator/internal/verdictmemory"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/handover"
	"federator.dev/federator/pkg/policy"
)

const always = `# METADATA
# title: Always
# custom: {severity: high, kinds: ["Pod"]}
package always

violation contains {"msg": "it is there"} if input.object
`

const ofKeys = `# METADATA
# title: Names
# custom: {severity: high, kinds: ["Pod"], subject: view.names}
package names

view.names[input.ref.name] contains input.ref.member

violation contains {"msg": "it is there"} if count(input.entries) > 0
`

// judge is a process that judges a Pod of a member, by a clock of its own.
func judge(t *testing.T, now time.Time, memory *verdictmemory.Memory) (*enforce.Loop, *aggregate.Index) {
	t.Helper()
	return judgeOf(t, now, memory, always)
}

// judgeOf is judge by a policy.
func judgeOf(t *testing.T, now time.Time, memory *verdictmemory.Memory, text string) (*enforce.Loop, *aggregate.Index) {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScope("fleet/a", "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	item := scope.Item(&aggregate.Record{Namespace: "n", Name: "p", UID: "u", ResourceVersion: "1", Body: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n"}}`)})
	if _, err := scope.Replace([]aggregate.Item{item}, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(text)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bindings, findings := policy.DefaultBindings(set, nil)
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	evaluated := make(chan struct{}, 1)
	loop, err := enforce.New(enforce.Options{
		Index: index, Set: set, Bindings: bindings, Memory: memory, Clock: func() time.Time { return now },
		Changed: func(*policy.Changes, *aggregate.Batch) {
			select {
			case evaluated <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	<-evaluated
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return loop, index
}

// TestSharing_LearnsSinceWhenViolationsAreThere of the process that judges a member so far, over the connection that all goes over.
func TestSharing_LearnsSinceWhenViolationsAreThere(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	process := func() *Sharing {
		s := &Sharing{o: Options{Logger: slog.New(slog.DiscardHandler)}}
		var err error
		if s.memory, err = verdictmemory.New("", nil, s.o.Logger); err != nil {
			t.Fatal(err)
		}
		if s.taker, err = handover.NewTaker(handover.TakerOptions{Holders: s.holdersOf}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := process(), process()
	_, index := judge(t, t0, a.memory)
	giver, err := handover.NewGiver(handover.GiverOptions{
		Index: index, Seen: a.seen, Peer: func(*http.Request) string { return "b" },
		Form: func(aggregate.Kind) string { return "" }, Proved: func(string, aggregate.Kind) time.Time { return time.Time{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(giver)
	defer server.Close()
	b.learn(t.Context(), verdictmemory.Source{Member: "fleet/a", UID: "a"},
		handover.Holder{ID: "nobody", URL: "http://127.0.0.1:1", Client: server.Client()}, handover.Holder{ID: "a", URL: server.URL, Client: server.Client()})
	loop, _ := judge(t, t0.Add(time.Hour), b.memory)
	v, _ := loop.State().Get("always", policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Pod", Namespace: "n", Name: "p"}})
	if len(v.Violations) != 1 || !v.FirstSeen.At(0).Equal(t0) {
		t.Errorf("%d violations, first seen at %s", len(v.Violations), v.FirstSeen.At(0))
	}
}
