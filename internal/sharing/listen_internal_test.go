package sharing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"federator.dev/federator/internal/verdictmemory"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/handover"
	"federator.dev/federator/pkg/shards"
)

// listening is a process that listens, by a map in which another one may take its member over.
type listening struct {
	t     *testing.T
	url   string
	roots *x509.CertPool
	end   context.CancelFunc
	ended chan error // of the listener
	begun chan struct{}
	over  chan struct{} // the request of "/" is no longer wanted
}

// listens starts one that knows some violations, nil for none.
func listens(t *testing.T, memory *verdictmemory.Memory) *listening {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "u"}); err != nil {
		t.Fatal(err)
	}
	s := &Sharing{memory: memory}
	form := func(aggregate.Kind) string { return "form" }
	s.giver, err = handover.NewGiver(handover.GiverOptions{
		Index: index, Form: form, Proved: func(string, aggregate.Kind) time.Time { return time.Time{} }, Seen: s.seen, Peer: func(*http.Request) string { return "p-1" },
	})
	if err != nil {
		t.Fatal(err)
	}
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &listening{t: t, url: "https://" + on.Addr().String(), roots: x509.NewCertPool(), ended: make(chan error, 1), begun: make(chan struct{}), over: make(chan struct{})}
	l.roots.AddCert(certified.Certificate())
	mux := http.NewServeMux()
	mux.Handle(handover.Path, s.giver)
	mux.Handle(handover.SeenPath, s.giver)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(l.begun)
		<-r.Context().Done()
		close(l.over)
	})
	s.o = Options{Name: "p-0", Listener: on, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	s.server = &http.Server{Handler: mux, TLSConfig: certified.TLS.Clone(), ErrorLog: slog.NewLogLogger(slog.NewTextHandler(t.Output(), nil), slog.LevelDebug)}
	m := &shards.Map{Processes: []shards.Process{{ID: "p-0"}, {ID: "p-1"}, {ID: "lost"}}, Members: []shards.Member{{Name: "fleet/a", UID: "u", Judge: "p-0"}}}
	s.newest = func() *shards.Map { return m }
	s.holders.follow(m, []shards.Peer{{ID: "p-1"}})
	ctx, end := context.WithCancel(t.Context())
	l.end = end
	go func() { l.ended <- s.listen(ctx) }()
	t.Cleanup(end)
	return l
}

// connects returns a client with connections of its own.
func (l *listening) connects() *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: l.roots, ServerName: "example.com"}, ForceAttemptHTTP2: true}
	l.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (l *listening) get(c *http.Client, path string) *http.Response {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, l.url+path, http.NoBody)
	if err != nil {
		l.t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestListen_HandsOverAtTheEnd, to who connects only then: what is read otherwise ends, and nothing else is answered.
func TestListen_HandsOverAtTheEnd(t *testing.T) {
	l := listens(t, nil)
	before := l.connects()
	stream := l.get(before, "/stream")
	<-l.begun
	l.end()
	<-l.over
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream does not end: %v", err)
	}
	for name, c := range map[string]*http.Client{"the connection that there was": before, "one that is new": l.connects()} {
		if resp := l.get(c, "/query/v1/findings"); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
	resp := l.get(l.connects(), handover.Path+"?name=fleet/a&uid=u")
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || len(text) == 0 {
		t.Errorf("what is handed over: %s, %d bytes, %v", resp.Status, len(text), err)
	}
	if err := <-l.ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("it ends with %v", err)
	}
}

// TestListen_SaysOfKeysAtTheEnd since when their violations are there, to all who may judge them next, also where others have its
// members already.
func TestListen_SaysOfKeysAtTheEnd(t *testing.T) {
	memory, err := verdictmemory.New("", nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	judgeOf(t, time.Now(), memory, ofKeys)
	l := listens(t, memory)
	l.end()
	resp := l.get(l.connects(), handover.Path+"?name=fleet/a&uid=u")
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	resp = l.get(l.connects(), handover.SeenPath)
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || len(text) < 2*32 {
		t.Errorf("since when violations of keys are there: %s, %q, %v", resp.Status, text, err)
	}
	if err := <-l.ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("it ends with %v", err)
	}
}
