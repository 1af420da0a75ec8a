package agent_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/agent"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// scripted is the hub side as a test has it, in memory: hours of an agent's life take no time in a bubble of synctest.
// The real one is what all other tests run.
type scripted struct {
	t         *testing.T
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
	serving   tls.Certificate

	mu      sync.Mutex
	refuses map[string]int           // by address: with which code
	away    bool                     // nobody answers
	life    time.Duration            // of certificates
	ago     time.Duration            // how long ago certificates were made, by the agent's clock
	tokens  []string                 // that may be used
	dials   map[string]int           // by address
	uses    map[string]chan struct{} // full while a connection is in use
	issued  []time.Time              // when
	loses   int                      // answers, the next so many
	silent  string                   // path of requests that are not answered
	keys    [][]byte                 // that agents came with to join
	taken   map[string]int           // connections that agents serve, by address
	conns   map[net.Conn]string

	agent atomic.Pointer[agent.Agent] // that runs
}

// addressA and addressB are of two processes.
const addressA, addressB = "a.example:9443", "b.example:9443"

func newScripted(t *testing.T) *scripted {
	t.Helper()
	s := &scripted{t: t, refuses: map[string]int{}, dials: map[string]int{}, uses: map[string]chan struct{}{addressA: make(chan struct{}, 1), addressB: make(chan struct{}, 1)}, taken: map[string]int{}, conns: map[net.Conn]string{}, life: 24 * time.Hour, ago: 24 * time.Hour}
	s.authority, s.key = s.sign(&x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign}, nil, 10*365*24*time.Hour)
	leaf, key := s.sign(&x509.Certificate{DNSNames: []string{"a.example", "b.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, nil, 365*24*time.Hour)
	s.serving = tls.Certificate{Certificate: [][]byte{leaf.Raw, s.authority.Raw}, PrivateKey: key, Leaf: leaf}
	s.ago = 0
	return s
}

// sign makes a certificate, of a new key if none is given.
func (s *scripted) sign(c *x509.Certificate, public any, life time.Duration) (*x509.Certificate, *ecdsa.PrivateKey) {
	var key *ecdsa.PrivateKey
	if public == nil {
		var err error
		key, err = identity.NewKey()
		ok(s.t, err)
		public = key.Public()
	}
	c.SerialNumber, c.Subject, c.BasicConstraintsValid = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "scripted"}, true
	c.NotBefore = time.Now().Add(-s.ago)
	c.NotAfter = c.NotBefore.Add(life)
	parent, by := s.authority, s.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, by)
	ok(s.t, err)
	cert, err := x509.ParseCertificate(der)
	ok(s.t, err)
	return cert, key
}

// token makes a token.
func (s *scripted) token() string {
	token := joining.NewToken(identity.Digest(s.authority)).String()
	s.set(func() { s.tokens = append(s.tokens, token) })
	return token
}

// set changes the script.
func (s *scripted) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// refuse has a process refuse agents, and end their connections. 0: no longer.
func (s *scripted) refuse(address string, code int) {
	s.set(func() {
		s.refuses[address] = code
		for c, of := range s.conns {
			if of == address && code != 0 {
				c.Close()
			}
		}
	})
}

// cut ends all connections.
func (s *scripted) cut() {
	s.set(func() {
		for c := range s.conns {
			c.Close()
		}
	})
}

// dialed returns how often an address was dialled.
func (s *scripted) dialed(address string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials[address]
}

// connections returns how many there are that agents serve at an address: one that is in use, and one to spare.
func (s *scripted) connections(address string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[address]
}

// certificates returns when certificates were issued.
func (s *scripted) certificates() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.issued...)
}

// run runs an agent until it ends or the test does, and returns what Run does.
func (s *scripted) run(ctx context.Context, store agent.Store, log slog.Handler, o agent.Options) error {
	o.Hubs, o.Cluster, o.Store, o.Logger = []string{addressA, addressB}, &rest.Config{Host: "https://127.0.0.1:1"}, store, slog.New(log)
	o.PingInterval, o.PingTimeout = 100*time.Hour, time.Hour // it answers no ping
	var serving sync.WaitGroup
	defer serving.Wait()
	o.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dials[address]++
		if s.away {
			return nil, errors.New("nobody is there")
		}
		near, far := net.Pipe()
		serving.Go(func() {
			defer far.Close()
			s.serve(far, address)
		})
		return &socket{Conn: near}, nil
	}
	a, err := agent.New(o)
	ok(s.t, err)
	s.agent.Store(a)
	return a.Run(ctx)
}

// socket is an end of a pipe that is written to as a socket is: what the other end has closed takes what is written, once at
// least, and is found closed by reading. A pipe fails at once, and net/http then reports that at random in place of the alert
// that it has read.
type socket struct {
	net.Conn

	closed atomic.Bool // at this end
}

// Write implements net.Conn.
func (s *socket) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) && !s.closed.Load() {
		return len(b), nil
	}
	return n, err
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.closed.Store(true)
	return s.Conn.Close()
}

// serve serves one connection: one request, or federator's use of it.
func (s *scripted) serve(raw net.Conn, address string) {
	pool := x509.NewCertPool()
	pool.AddCert(s.authority)
	c := tls.Server(raw, &tls.Config{
		Certificates: []tls.Certificate{s.serving}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool, SessionTicketsDisabled: true,
		NextProtos: []string{joining.Protocol, "http/1.1"}, MinVersion: tls.VersionTLS13,
		Time: func() time.Time { return time.Now().Add(-s.clock()) },
	})
	if c.Handshake() != nil {
		return
	}
	if c.ConnectionState().NegotiatedProtocol != joining.Protocol {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		s.answer(w, req, address)
		lost := false
		s.set(func() { s.loses--; lost = s.loses >= 0 || s.silent == req.URL.Path })
		if lost {
			return
		}
		_ = w.Result().Write(c)
		return
	}
	s.mu.Lock()
	refused := s.refuses[address] != 0
	if !refused {
		s.taken[address]++
		s.conns[raw] = address
	}
	use := s.uses[address]
	s.mu.Unlock()
	if refused {
		return
	}
	defer s.set(func() {
		s.taken[address]--
		delete(s.conns, raw)
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, c)
	}()
	select {
	case use <- struct{}{}: // the others are to spare
		defer func() { <-use }()
		_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	case <-ended:
	}
	<-ended
}

// clock is by how much the agent's is ahead.
func (s *scripted) clock() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ago
}

func (s *scripted) answer(w http.ResponseWriter, r *http.Request, address string) {
	var req joining.Request
	ok(s.t, joining.Decode(r.Body, &req))
	s.mu.Lock()
	defer s.mu.Unlock()
	if code := s.refuses[address]; code != 0 {
		joining.WriteError(w, code, metav1.StatusReasonForbidden, "it is refused")
		return
	}
	resp := joining.Response{Member: "edge/far"}
	if r.URL.Path == joining.JoinPath {
		csr, err := x509.ParseCertificateRequest(req.CSR)
		ok(s.t, err)
		s.keys = append(s.keys, csr.RawSubjectPublicKeyInfo)
		if s.loses > 0 {
			return // the token is not used up, as if federator knew the key again
		}
		left := len(s.tokens)
		for i, t := range s.tokens {
			if t == req.Token {
				s.tokens = append(s.tokens[:i:i], s.tokens[i+1:]...)
			}
		}
		if len(s.tokens) == left {
			joining.WriteError(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the token is not known")
			return
		}
	}
	if r.URL.Path != joining.HelloPath {
		csr, err := x509.ParseCertificateRequest(req.CSR)
		ok(s.t, err)
		cert, _ := s.sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, URIs: []*url.URL{{Scheme: "federator", Host: "edge"}}}, csr.PublicKey, s.life)
		resp.Certificate, resp.Authorities = identity.Encode(cert), identity.Encode(s.authority)
		s.issued = append(s.issued, time.Now())
	}
	ok(s.t, json.NewEncoder(w).Encode(resp))
}

// inMemory is a Store.
type inMemory struct {
	mu    sync.Mutex
	kept  *agent.Kept
	saved int
	fails int // so many times
}

func (m *inMemory) Load(context.Context) (*agent.Kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept, nil
}

func (m *inMemory) Save(_ context.Context, k *agent.Kept) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails--; m.fails >= 0 {
		return errors.New("the API server is away for a moment")
	}
	m.kept, m.saved = k, m.saved+1
	return nil
}

// warnings counts what is logged as a Warn that has a text.
type warnings struct {
	slog.Handler

	of string

	mu sync.Mutex
	n  int
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && strings.Contains(r.Message, w.of) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.n++
	}
	return nil
}

func (w *warnings) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}
