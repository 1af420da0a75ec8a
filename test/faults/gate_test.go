package faults

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// gate is an HTTPS server in an API server's place, with its certificate: it passes requests on,
// refuses them, or takes something out of what a watch says.
type gate struct {
	listener net.Listener
	server   *http.Server
	proxy    *httputil.ReverseProxy
	upstream http.RoundTripper
	serving  sync.WaitGroup

	mu     sync.Mutex
	pair   tls.Certificate
	answer func(http.ResponseWriter, *http.Request) bool // reports whether it has answered; nil: all is passed on
	drop   func(path string, frame []byte) bool          // of watches; nil: nothing is dropped
	ctx    context.Context                               // of the requests under way
	end    context.CancelFunc
	asked  int // requests answered by answer
}

func listenGate(m *member) (*gate, error) {
	config := m.RESTConfigWith(m.cred)
	config.Host = m.host
	upstream, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(m.host)
	if err != nil {
		return nil, err
	}
	g := &gate{upstream: upstream}
	if g.pair, err = tls.LoadX509KeyPair(m.ServingFiles()); err != nil {
		return nil, err
	}
	if g.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:        func(q *httputil.ProxyRequest) { q.SetURL(at) },
		Transport:      upstream,
		FlushInterval:  -1,
		ModifyResponse: g.modify,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as a dead server
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	g.set(nil, nil)
	g.server = &http.Server{
		Handler: http.HandlerFunc(g.serve), ReadHeaderTimeout: 30 * time.Second, ErrorLog: g.proxy.ErrorLog,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return &g.pair, nil
		}},
	}
	g.serving.Go(func() {
		_ = g.server.ServeTLS(g.listener, "", "") // it ends with Close
	})
	return g, nil
}

// Close ends the gate and waits for what it started.
func (g *gate) Close() error {
	g.mu.Lock()
	g.end()
	g.mu.Unlock()
	err := g.server.Close()
	g.serving.Wait()
	if t, ok := g.upstream.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return err
}

// set changes what the gate does, and ends the requests under way.
func (g *gate) set(answer func(http.ResponseWriter, *http.Request) bool, drop func(string, []byte) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.end != nil {
		g.end()
	}
	g.answer, g.drop, g.asked = answer, drop, 0
	g.ctx, g.end = context.WithCancel(context.Background())
}

// present has the gate identify itself by another certificate, in new connections.
func (g *gate) present(pair tls.Certificate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pair = pair
}

// refused counts the requests that were not passed on.
func (g *gate) refused() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

func (g *gate) serve(w http.ResponseWriter, q *http.Request) {
	g.mu.Lock()
	answer, all := g.answer, g.ctx
	g.mu.Unlock()
	if answer != nil && answer(w, q) {
		g.mu.Lock()
		g.asked++
		g.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	defer context.AfterFunc(all, cancel)()
	g.proxy.ServeHTTP(w, q.WithContext(ctx))
}

// modify takes out of a watch what is to be dropped.
func (g *gate) modify(resp *http.Response) error {
	g.mu.Lock()
	drop := g.drop
	g.mu.Unlock()
	if q := resp.Request.URL.Query(); drop == nil || resp.StatusCode != http.StatusOK || q.Get("watch") == "" {
		return nil
	}
	json := strings.Contains(resp.Header.Get("Content-Type"), "json")
	resp.Body = &sieve{body: resp.Body, reader: bufio.NewReader(resp.Body), json: json, drop: func(frame []byte) bool { return drop(resp.Request.URL.Path, frame) }}
	return nil
}

// sieve reads a watch frame by frame.
type sieve struct {
	body   io.ReadCloser
	reader *bufio.Reader
	json   bool
	drop   func([]byte) bool
	rest   []byte
}

func (s *sieve) Close() error { return s.body.Close() }

func (s *sieve) Read(b []byte) (int, error) {
	for len(s.rest) == 0 {
		frame, err := s.next()
		if err != nil {
			return 0, err
		}
		if !s.drop(frame) {
			s.rest = frame
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *sieve) next() ([]byte, error) {
	if s.json {
		return s.reader.ReadBytes('\n')
	}
	head, err := s.reader.Peek(4)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(head))
	_, err = io.ReadFull(s.reader, frame)
	return frame, err
}

// storm refuses all that asked says, with what an API server says then.
func storm(code int, reason, message string, retryAfter int, asked func(*http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, q *http.Request) bool {
		if !asked(q) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		details := ""
		if retryAfter > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(retryAfter))
			details = fmt.Sprintf(`,"details":{"retryAfterSeconds":%d}`, retryAfter)
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d%s}`, message, reason, code, details)
		return true
	}
}

func everything(*http.Request) bool { return true }

// objects reports whether a request lists or watches objects, which a watch cache answers.
func objects(q *http.Request) bool {
	v := q.URL.Query()
	return v.Has("watch") || v.Has("limit") || v.Has("resourceVersion")
}
