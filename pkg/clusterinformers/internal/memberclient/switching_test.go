package memberclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
	"federator.dev/federator/pkg/clusterinformers/internal/h2test"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// streamOf sends a request whose body the caller bounds.
func streamOf(t *testing.T, client *http.Client, url string) io.ReadCloser {
	t.Helper()
	contentType := ""
	resp, err := get(WithStream(t.Context(), &contentType), client, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body
}

func TestTransport_StreamsAreReadWithoutWaiting(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "event")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	for _, stock := range []bool{false, true} {
		client := clientOf(t, s.URL, TransportOptions{Trusted: true, Stock: stock}, nil)
		body := streamOf(t, client, s.URL+"/?watch=1")
		if _, is := body.(interface{ Grow(int) }); is == stock {
			t.Errorf("stock: %t; its window grows: %t", stock, is)
		}
		in := stream.Pump(body)
		defer in.Close()
		ready := make(chan struct{}, 10)
		in.Notify(func() { ready <- struct{}{} })
		<-ready
		b := make([]byte, 10)
		if n, err := in.ReadNow(b); err != nil || string(b[:n]) != "event" {
			t.Errorf("%q, %v", b[:n], err)
		}
		if _, err := in.ReadNow(b); !errors.Is(err, stream.ErrNothing) {
			t.Error(err)
		}
	}
}

func TestTransport_GoesStockAfterThreeViolations(t *testing.T) {
	url := h2test.Overlong(t)
	var violations, stock atomic.Int32
	client := clientOf(t, url, TransportOptions{
		Trusted:     true,
		OnViolation: func(error) { violations.Add(1) },
		OnStock: func(err error) {
			var v *h2.ProtocolError
			if stock.Add(1); !errors.As(err, &v) {
				t.Errorf("%v is no violation", err)
			}
		},
	}, nil)
	for range 3 {
		if stock.Load() != 0 {
			t.Error("early")
		}
		body := streamOf(t, client, url)
		if _, err := io.ReadAll(body); err == nil {
			t.Error("a body longer than announced was accepted")
		}
	}
	// Over HTTP/1.1: servers can have the HTTP/2 of net/http wait for itself.
	resp, err := get(t.Context(), client, url)
	if err != nil || resp.Proto != "HTTP/1.1" || violations.Load() != 3 || stock.Load() != 1 {
		t.Fatalf("after %d violations %d decisions: %+v, %v", violations.Load(), stock.Load(), resp, err)
	}
	resp.Body.Close()
	client.CloseIdleConnections()
	client.Transport.(*transport).closeAll()
}

// net/http reads a flood for as long as it comes.
func TestTransport_StaysWhereAServerFloods(t *testing.T) {
	url := h2test.Flooding(t)
	var violations, stock atomic.Int32
	client := clientOf(t, url, TransportOptions{
		Trusted: true, OnViolation: func(error) { violations.Add(1) }, OnStock: func(error) { stock.Add(1) },
	}, nil)
	for n := range int32(2 * maxViolations) {
		resp, err := get(t.Context(), client, url)
		if err == nil {
			resp.Body.Close()
		}
		if err == nil || violations.Load() != n+1 || stock.Load() != 0 {
			t.Fatalf("request %d: %v; %d violations, %d times it is to be reached by net/http", n, err, violations.Load(), stock.Load())
		}
	}
	client.CloseIdleConnections()
	client.Transport.(*transport).closeAll()
}

// net/http would send again what a server reset with PROTOCOL_ERROR, which it may have begun.
func TestTransport_SendsBodiesOnce(t *testing.T) {
	for _, code := range []http2.ErrCode{http2.ErrCodeProtocol, http2.ErrCodeInternal, http2.ErrCodeNo} {
		for _, stock := range []bool{false, true} {
			var requests atomic.Int32
			url := h2test.Resetting(t, code, &requests)
			for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete} {
				requests.Store(0)
				client := clientOf(t, url, TransportOptions{Trusted: true, Stock: stock}, nil)
				req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				if resp, err := client.Do(req); err == nil {
					resp.Body.Close()
					t.Errorf("%s was answered", method)
				}
				if n := requests.Load(); n != 1 {
					t.Errorf("%s: stock: %t: %s was sent %d times", code, stock, method, n)
				}
				client.Transport.(*transport).closeAll()
			}
		}
	}
}

// What a member sends before it is read is bounded with net/http, too.
func TestTransport_WindowsAreSmall(t *testing.T) {
	for _, stock := range []bool{false, true} {
		var sent atomic.Int64
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				n, _ := w.Write(make([]byte, 16<<10))
				_ = http.NewResponseController(w).Flush()
				sent.Add(int64(n))
			}
		})
		client := clientOf(t, s.URL, TransportOptions{Trusted: true, Stock: stock}, nil)
		streamOf(t, client, s.URL+"/?watch=1")
		last, since := int64(-1), time.Now()
		eventually(t, "the server stops sending", 10*time.Second, func() bool {
			if now := sent.Load(); now != last {
				last, since = now, time.Now()
			}
			return last > 0 && time.Since(since) > 100*time.Millisecond
		})
		if last > 3<<19 { // what net/http's server buffers included
			t.Errorf("stock: %t: %d bytes came", stock, last)
		}
		client.Transport.(*transport).closeAll()
	}
}

func TestTransport_ReachesServersThatDoNotSpeakHTTP2(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	defer s.Close()
	var stock atomic.Int32
	client := clientOf(t, s.URL, TransportOptions{Trusted: true, OnStock: func(error) { stock.Add(1) }}, nil)
	for range 2 {
		if got, err := io.ReadAll(streamOf(t, client, s.URL)); err != nil || string(got) != "HTTP/1.1" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := stock.Load(); n != 1 {
		t.Errorf("said %d times", n)
	}
}

func TestClient_CloseEndsWhatIsUnderWay(t *testing.T) {
	asked := make(chan struct{}, 4)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			_ = http.NewResponseController(w).Flush()
		}
		asked <- struct{}{}
		<-r.Context().Done()
	})
	for _, stock := range []bool{false, true} {
		client := clientOf(t, s.URL, TransportOptions{Trusted: true, Stock: stock}, nil)
		body := streamOf(t, client, s.URL+"/watch")
		var wg sync.WaitGroup
		wg.Go(func() {
			if resp, err := get(context.Background(), client, s.URL+"/list"); err == nil {
				resp.Body.Close()
				t.Error("answered")
			}
		})
		<-asked
		<-asked
		begin := time.Now()
		New(nil, client).Close()
		if _, err := body.Read(make([]byte, 1)); err == nil {
			t.Error("a stream goes on")
		}
		wg.Wait()
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("took %s", took)
		}
	}
}
