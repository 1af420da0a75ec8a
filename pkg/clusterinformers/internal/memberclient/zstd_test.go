package memberclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
	"federator.dev/federator/pkg/clusterinformers/internal/zstdstream"
)

// agentOf returns a client of a member by an agent, which is a handler.
func agentOf(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := NewByAgent(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}, TransportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Close()
		<-served
	})
	return c
}

func inZstd(t *testing.T, text []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var out bytes.Buffer
	e.Reset(&out)
	if _, err := e.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func getBy(ctx context.Context, t *testing.T, c *Client) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://agent/api/v1/pods", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return c.http.Do(req)
}

// TestByAgent_Encodings: what was asked for is decoded, what was not is an error.
func TestByAgent_Encodings(t *testing.T) {
	text := []byte(strings.Repeat("a list of pods, ", 10_000))
	for encoding, body := range map[string][]byte{"zstd": inZstd(t, text), "identity": text, "": text} {
		c := agentOf(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "zstd" {
				t.Errorf("Accept-Encoding: %s", got)
			}
			if encoding != "" {
				w.Header().Set("Content-Encoding", encoding)
			}
			_, _ = w.Write(body)
		})
		resp, err := getBy(t.Context(), t, c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(got, text) || resp.Header.Get("Content-Encoding") == "zstd" {
			t.Errorf("%q: %d bytes, %v", encoding, len(got), err)
		}
		resp.Body.Close()
	}
	for _, encoding := range []string{"gzip", "zstd, gzip", "br"} {
		c := agentOf(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", encoding) })
		resp, err := getBy(t.Context(), t, c)
		if err == nil {
			resp.Body.Close()
		}
		if refused := (*h2.EncodingError)(nil); !errors.As(err, &refused) {
			t.Errorf("%s: %v", encoding, err)
		}
	}
}

// TestByAgent_LimitsAreOfWhatIsDecoded: few bytes do not become more than may come.
func TestByAgent_LimitsAreOfWhatIsDecoded(t *testing.T) {
	bomb := inZstd(t, make([]byte, maxBody+1))
	for code, limit := range map[int]int64{http.StatusOK: maxBody, http.StatusInternalServerError: maxErrorBody} {
		c := agentOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "zstd")
			w.WriteHeader(code)
			_, _ = w.Write(bomb)
		})
		resp, err := getBy(t.Context(), t, c)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, errBodyTooLarge) || n != limit {
			t.Errorf("%d: %d bytes of %d, %v", code, n, len(bomb), err)
		}
		resp.Body.Close()
	}
}

// TestByAgent_Watch: a watch is a stream, whose decoder is charged for, and that says when it is none.
func TestByAgent_Watch(t *testing.T) {
	next := make(chan []byte)
	c := agentOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "zstd")
		w.(http.Flusher).Flush()
		for {
			select {
			case b := <-next:
				_, _ = w.Write(b)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	var charged atomic.Int64
	contentType := ""
	ctx := h2.WithRequestOptions(WithStream(t.Context(), &contentType), h2.RequestOptions{Watch: true, Detached: true, Charge: func(n int64) error {
		charged.Add(n)
		return nil
	}})
	resp, err := getBy(ctx, t, c)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s, is := resp.Body.(stream.Stream)
	if !is {
		t.Fatalf("%T is no stream", resp.Body)
	}
	ready := make(chan struct{}, 10)
	s.Notify(func() { ready <- struct{}{} })
	p := make([]byte, 100)
	raw := inZstd(t, []byte("an event"))
	for _, part := range [][]byte{raw[:3], raw[3:]} {
		if n, err := s.ReadNow(p); !errors.Is(err, stream.ErrNothing) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		next <- part
		<-ready
	}
	if n, err := s.ReadNow(p); err != nil || string(p[:n]) != "an event" {
		t.Fatalf("%q, %v", p[:n], err)
	}
	if n, err := s.ReadNow(p); !errors.Is(err, stream.ErrNothing) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if n := charged.Load(); n != 0 {
		t.Errorf("between frames %d bytes are charged", n)
	}
	next <- []byte("garbage")
	<-ready
	if _, err := s.ReadNow(p); !errors.Is(err, zstdstream.ErrMalformed) {
		t.Errorf("%v", err)
	}
}
