package enforcement_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/enforcement"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/intents/facts"
	"federator.dev/federator/pkg/intents/relay"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// noMembers are members of which there are none.
type noMembers struct{ remediate.ClientFactory }

func (noMembers) CheckWritable(string) error { return nil }

func (noMembers) RequireKinds([]policy.Kind) {}

func newSharded(t *testing.T, identity string, s *enforcement.Shards) (*enforcement.Enforcement, error) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	return enforcement.New(enforcement.Options{Hub: &rest.Config{Host: "http://127.0.0.1:1"}, Index: index, Members: noMembers{}, Namespace: "federator", Identity: identity, Shards: s})
}

// TestRun_LeadsBeforeItIsKnownWhatIsJudged: it is the leader who says what is judged where, so nobody waits for that to lead.
func TestRun_LeadsBeforeItIsKnownWhatIsJudged(t *testing.T) {
	leads := make(chan struct{})
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/leases") {
			http.NotFound(w, r)
			return
		}
		lease, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(lease)
		select {
		case <-leads:
		default:
			close(leads)
		}
	}))
	defer hub.Close()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	e, err := enforcement.New(enforcement.Options{
		Hub: &rest.Config{Host: hub.URL}, Index: index, Members: noMembers{}, Namespace: "federator", Identity: "federator-0",
		Shards: &enforcement.Shards{
			Epoch: "1", Fleet: func() *intents.Fleet { return nil }, Peer: func(*http.Request) string { return "" }, Told: index, Changed: func(*policy.Changes) {}, Wants: wants,
			Known: func(ctx context.Context) {
				select {
				case <-leads:
				case <-ctx.Done():
				}
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	select {
	case <-leads:
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(30 * time.Second):
		t.Error("it does not stand for election")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func wants(string, *interest.Keys) bool { return true }

// TestHandler_AnswersPeersOnly, below the paths of all that they ask.
func TestHandler_AnswersPeersOnly(t *testing.T) {
	fleet := &intents.Fleet{Self: "federator-0"}
	peer := func(r *http.Request) string { return r.Header.Get("Test-Peer") }
	told, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	good := enforcement.Shards{Epoch: "1", Fleet: func() *intents.Fleet { return fleet }, Peer: peer, Told: told, Changed: func(*policy.Changes) {}, Wants: wants}
	e, err := newSharded(t, "federator-0", &good)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{intents.Path + "stream", facts.Path + "members", relay.Path + "members/fleet/m"} {
		for _, who := range []string{"", "federator-1"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody)
			r.Header.Set("Test-Peer", who)
			w := httptest.NewRecorder()
			e.Handler().ServeHTTP(w, r)
			if forbidden := w.Body.String() == "only processes of this fleet may ask\n"; forbidden != (who == "") {
				t.Errorf("%s as %q: %d %s", path, who, w.Code, w.Body)
			}
		}
	}
	for _, without := range []func(*enforcement.Shards){
		func(s *enforcement.Shards) { s.Epoch = "" }, func(s *enforcement.Shards) { s.Fleet = nil }, func(s *enforcement.Shards) { s.Peer = nil },
		func(s *enforcement.Shards) { s.Told = nil }, func(s *enforcement.Shards) { s.Changed = nil },
		func(s *enforcement.Shards) { s.Wants = nil },
	} {
		bad := good
		without(&bad)
		if _, err := newSharded(t, "federator-0", &bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if _, err := newSharded(t, "", &good); err == nil {
		t.Error("a process without an ID was accepted")
	}
	alone, err := newSharded(t, "", nil)
	if err != nil || alone.Handler() != nil {
		t.Errorf("a process that shares nothing: %v", err)
	}
}
