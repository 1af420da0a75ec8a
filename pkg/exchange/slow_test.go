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
	return startExporterAs(t, func(s *aggregate.Snapshot) exchange.Export { return export{s} }, pods...)
}

func startExporterAs(t *testing.T, as func(*aggregate.Snapshot) exchange.Export, pods ...*aggregate.Record) *exchange.Exporter {
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
	x.Changed(as(index.Snapshot()), exchange.Changes{})
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
		c := connect(t, x, 30*time.Second)
		c.ask(0, "")
		c.ask(1, "y")
		if d, _ := c.until(1); d < 30*time.Second {
			t.Fatalf("what was asked for first took %v", d)
		}
		c.ask(2, "x")
		if d, _ := c.until(2); d > time.Second {
			t.Errorf("what was asked for next took %v", d)
		}
	})
}

// connection is an importer that asks.
type connection struct {
	t    *testing.T
	asks *wire.Writer
	told *wire.Reader
}

// connect has an importer ask, whose network takes so long for the first write.
func connect(t *testing.T, x *exchange.Exporter, by time.Duration) *connection {
	t.Helper()
	body, asks := io.Pipe()
	from, to := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, exchange.StreamPath, body)
	request.ProtoMajor = 2
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		x.ServeHTTP(&delayed{response: response{httptest.NewRecorder()}, by: by, to: to}, request)
	}()
	plain, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_, _ = from.Close(), asks.Close()
		<-ended
		plain.Close()
	})
	return &connection{t: t, asks: wire.NewWriter(asks), told: wire.NewReader(&opened{from: from, plain: plain}, 4<<20)}
}

// opened decompresses what it reads once somebody reads it.
type opened struct {
	from  io.Reader
	plain *zstd.Decoder
	is    bool
}

func (o *opened) Read(p []byte) (int, error) {
	if !o.is {
		o.is = true
		if err := o.plain.Reset(o.from); err != nil {
			return 0, err
		}
	}
	return o.plain.Read(p)
}

// ask asks for a pod by its name, "" for nothing.
func (c *connection) ask(number uint64, names ...string) {
	c.t.Helper()
	var b interest.Builder
	for _, name := range names {
		if name != "" {
			b.Add(interest.Names("Pod"), interest.NameBucket("ns", name))
		}
	}
	p, err := wire.Interest{Number: number, Set: b.Take()}.Append(nil)
	if err == nil {
		err = c.asks.Frame(wire.TypeInterest, p)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// until waits until it was told what was asked for, and returns how long that took, and the longest time in which nothing came.
func (c *connection) until(number uint64) (took, silence time.Duration) {
	c.t.Helper()
	began := time.Now()
	heard := began
	for {
		of, p, err := c.told.Next()
		if err != nil {
			c.t.Fatal(err)
		}
		silence, heard = max(silence, time.Since(heard)), time.Now()
		if f, err := wire.ParseFrontier(p); of == wire.TypeFrontier && err == nil && f.Interest == number {
			return time.Since(began), silence
		}
	}
}

// large is an export with very many keys, which are looked at for a minute.
type large struct{ export }

func (x large) Find(set *interest.Set, look func() error, yield func(aggregate.Ref) error) error {
	for range 600 {
		time.Sleep(100 * time.Millisecond) // of virtual time
		for range 1024 {
			if err := look(); err != nil {
				return err
			}
		}
	}
	return x.export.Find(set, look, yield)
}

// TestExporter_LooksForLongAndIsHeard: what takes long to look for, and may find nothing, is not taken for a process that is lost.
func TestExporter_LooksForLongAndIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := startExporterAs(t, func(s *aggregate.Snapshot) exchange.Export { return large{export{s}} }, record("x", 1, ""), record("y", 1, ""))
		c := connect(t, x, 0)
		c.ask(0, "")
		c.ask(1, "y")
		c.until(1)
		c.ask(2, "x", "y")
		took, silence := c.until(2)
		if took < time.Minute || silence > 2*time.Second {
			t.Errorf("it took %v, of which nothing was heard for %v", took, silence)
		}
	})
}
