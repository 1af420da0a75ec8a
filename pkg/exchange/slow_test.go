package exchange_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
)

// startExporter runs an exporter of one member with a pod, without a network: tests in virtual time have none.
func startExporter(t *testing.T) *exchange.Exporter {
	t.Helper()
	x, err := exchange.NewExporter(exchange.ExporterOptions{Process: "a", Epoch: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	index := newIndex(t)
	if err := index.PutMember(aggregate.Member{Name: m1, UID: m1, Serves: []aggregate.Kind{"Pod"}}); err != nil {
		t.Fatal(err)
	}
	s, err := index.OpenScope(m1, "Pod", "digest")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replace([]aggregate.Item{s.Item(record("x", 1, ""))}, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = x.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	x.Changed(export{index.Snapshot()}, exchange.Changes{})
	synctest.Wait()
	return x
}

// response is one whose writes have deadlines, as those of connections.
type response struct{ *httptest.ResponseRecorder }

func (response) SetWriteDeadline(time.Time) error { return nil }

// hanging is a response that nobody reads: what is written fails at the deadline.
type hanging struct {
	response
	begun chan struct{}
	until time.Time
}

func (h *hanging) SetWriteDeadline(at time.Time) error {
	h.until = at
	return nil
}

func (h *hanging) Write([]byte) (int, error) {
	close(h.begun)
	if h.until.IsZero() {
		h.until = time.Now().Add(24 * time.Hour)
	}
	time.Sleep(time.Until(h.until)) // of virtual time
	return 0, context.DeadlineExceeded
}

// TestDigests_WhoDoesNotReadDelaysNobody: digests are calculated for one importer at a time. One that does not read them has had
// its turn, and is not waited for without an end.
func TestDigests_WhoDoesNotReadDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := startExporter(t)
		ask := func(ctx context.Context, w http.ResponseWriter) {
			x.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, exchange.DigestsPath+"?member="+m1, nil))
		}
		h := &hanging{response: response{httptest.NewRecorder()}, begun: make(chan struct{})}
		began, took := time.Now(), make(chan time.Duration, 1)
		go func() { ask(t.Context(), h); took <- time.Since(began) }()
		<-h.begun
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		other := httptest.NewRecorder()
		ask(ctx, response{other})
		if other.Code != http.StatusOK || other.Body.Len() == 0 {
			t.Errorf("another importer is answered %d %q while one does not read", other.Code, other.Body)
		}
		if d := <-took; d > time.Minute {
			t.Errorf("one that does not read was waited for for %v", d)
		}
	})
}
