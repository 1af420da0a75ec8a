package exchange_test

import (
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/exchange/internal/wire"
	"federator.dev/federator/pkg/interest"
)

// startExporter runs an exporter of one member with pods, without a network: tests in virtual time have none.
func startExporter(t *testing.T, pods ...*aggregate.Record) *exchange.Exporter {
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
	items := make([]aggregate.Item, len(pods))
	for i, p := range pods {
		items[i] = s.Item(p)
	}
	if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
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
		x := startExporter(t, record("x", 1, ""))
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

// delayed is a response over HTTP/2 whose first write takes long.
type delayed struct {
	response
	by time.Duration
	to *io.PipeWriter
}

func (*delayed) SetReadDeadline(time.Time) error { return nil }
func (*delayed) Flush()                          {}

func (d *delayed) Write(p []byte) (int, error) {
	time.Sleep(d.by) // of virtual time
	d.by = 0
	return d.to.Write(p)
}

// TestExporter_ASlowNetworkDelaysNothingElseThatIsAskedFor: who asks is let wait for as long as it takes to look at what is asked
// for, some times, and not for what it takes to send that.
func TestExporter_ASlowNetworkDelaysNothingElseThatIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// So long that it is written before the batch ends.
		random := rand.NewChaCha8([32]byte{1})
		text := make([]byte, 1<<20)
		_, _ = random.Read(text)
		x := startExporter(t, record("x", 1, ""), record("y", 1, hex.EncodeToString(text)))
		body, asks := io.Pipe()
		from, to := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		request := httptest.NewRequestWithContext(ctx, http.MethodPost, exchange.StreamPath, body)
		request.ProtoMajor = 2
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			x.ServeHTTP(&delayed{response: response{httptest.NewRecorder()}, by: 30 * time.Second, to: to}, request)
		}()
		defer func() {
			cancel()
			_, _ = from.Close(), asks.Close()
			<-ended
		}()
		w := wire.NewWriter(asks)
		ask := func(number uint64, name string) {
			var b interest.Builder
			if name != "" {
				b.Add(interest.Names("Pod"), interest.NameBucket("ns", name))
			}
			p, err := wire.Interest{Number: number, Set: b.Take()}.Append(nil)
			if err == nil {
				err = w.Frame(wire.TypeInterest, p)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		ask(0, "")
		ask(1, "y")
		plain, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		r := wire.NewReader(plain, 4<<20)
		until := func(number uint64) time.Duration {
			began := time.Now()
			for {
				of, p, err := r.Next()
				if err != nil {
					t.Fatal(err)
				}
				if f, err := wire.ParseFrontier(p); of == wire.TypeFrontier && err == nil && f.Interest == number {
					return time.Since(began)
				}
			}
		}
		if d := until(1); d < 30*time.Second {
			t.Fatalf("what was asked for first took %v", d)
		}
		ask(2, "x")
		if d := until(2); d > time.Second {
			t.Errorf("what was asked for next took %v", d)
		}
	})
}
