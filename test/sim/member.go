package sim

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A Member is one simulated API server.
type Member struct {
	name     string
	opts     *Options
	ca       *authority
	address  string // host:port, kept for life
	faults   Faults
	requests Requests
	watches  atomic.Int64 // open ones

	mu        sync.Mutex // guards what follows
	creds     *credentials
	rv        uint64 // of the newest change of any kind
	tables    map[schema.GroupResource]*table
	kinds     []Kind // in discovery's order
	forbidden map[schema.GroupResource]bool

	net network
}

// firstRV is where members start, so that there is an older past that they have forgotten.
const firstRV = 1000

// network is what listens and what is connected.
type network struct {
	mu       sync.Mutex
	idle     sync.Cond // signalled when something below ends
	listener net.Listener
	conns    map[net.Conn]struct{}
	serving  int           // goroutines of conns, listener and requests
	cut      chan struct{} // closed while the member is cut off or closed
	isCut    bool
	closed   bool
}

func newMember(name string, opts *Options) (*Member, error) {
	ca, err := newAuthority(name)
	if err != nil {
		return nil, err
	}
	creds, err := ca.issue("admin", "system:masters")
	if err != nil {
		return nil, err
	}
	m := &Member{
		name: name, opts: opts, ca: ca, creds: creds, rv: firstRV,
		tables: map[schema.GroupResource]*table{}, forbidden: map[schema.GroupResource]bool{},
	}
	for _, k := range opts.Kinds {
		m.addKind(k)
	}
	if err := m.seed(); err != nil {
		return nil, err
	}
	m.net.conns = map[net.Conn]struct{}{}
	m.net.idle.L = &m.net.mu
	m.net.cut = make(chan struct{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m.address = listener.Addr().String()
	m.serve(listener)
	return m, nil
}

// Name is the member's name in its fleet.
func (m *Member) Name() string { return m.name }

// Address is the host:port that the member listens on, also while it is cut off.
func (m *Member) Address() string { return m.address }

// RESTConfig authenticates with the present client certificate.
func (m *Member) RESTConfig() *rest.Config {
	creds := m.credentials()
	return &rest.Config{
		Host:            "https://" + m.address,
		TLSClientConfig: rest.TLSClientConfig{CAData: m.ca.pem, CertData: creds.cert, KeyData: creds.key},
		QPS:             -1, // the server decides
	}
}

// TokenConfig authenticates with the present bearer token.
func (m *Member) TokenConfig() *rest.Config {
	return &rest.Config{
		Host: "https://" + m.address, BearerToken: m.credentials().token,
		TLSClientConfig: rest.TLSClientConfig{CAData: m.ca.pem}, QPS: -1,
	}
}

// Kubeconfig is a file with one context, named as the member, and a client certificate.
func (m *Member) Kubeconfig() ([]byte, error) {
	config := clientcmdapi.NewConfig()
	m.AddTo(config)
	config.CurrentContext = m.name
	return clientcmd.Write(*config)
}

// AddTo adds the member's cluster, user and context to a kubeconfig, each under the member's name.
func (m *Member) AddTo(config *clientcmdapi.Config) {
	creds := m.credentials()
	config.Clusters[m.name] = &clientcmdapi.Cluster{Server: "https://" + m.address, CertificateAuthorityData: m.ca.pem}
	config.AuthInfos[m.name] = &clientcmdapi.AuthInfo{ClientCertificateData: creds.cert, ClientKeyData: creds.key}
	config.Contexts[m.name] = &clientcmdapi.Context{Cluster: m.name, AuthInfo: m.name}
}

func (m *Member) credentials() *credentials {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.creds
}

// Rotate makes new credentials; the old ones get 401 from now on.
func (m *Member) Rotate() error {
	creds, err := m.ca.issue("admin", "system:masters")
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.creds = creds
	return nil
}

// Forbid answers 403 to every request for these kinds. Watches under way go on, as
// those of a real server do: see DropWatches.
func (m *Member) Forbid(kinds ...schema.GroupResource) { m.setForbidden(true, kinds) }

// Allow takes Forbid back.
func (m *Member) Allow(kinds ...schema.GroupResource) { m.setForbidden(false, kinds) }

func (m *Member) setForbidden(forbid bool, kinds []schema.GroupResource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, gr := range kinds {
		m.forbidden[gr] = forbid
	}
}

// Faults are what the member does wrong.
func (m *Member) Faults() *Faults { return &m.faults }

// Requests counts the requests to the member.
func (m *Member) Requests() *Requests { return &m.requests }

// DropWatches ends the watches of these kinds, all when none is given, as a server
// does at their timeout.
func (m *Member) DropWatches(kinds ...schema.GroupResource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.chosen(kinds) {
		t.dropWatches()
	}
}

// Compact forgets the history of these kinds, all when none is given: watches from a
// resourceVersion older than the present get 410. Watches that run are not disturbed
// unless they lag.
func (m *Member) Compact(kinds ...schema.GroupResource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.chosen(kinds) {
		t.compact(m.rv)
	}
}

// Rewind takes the member back to how it was at an earlier resourceVersion, as an API
// server is that is started on an older copy of its etcd: what came after never was,
// and new changes get its resourceVersions. Watches end. The history must reach back
// that far, and definitions of kinds are not taken back.
func (m *Member) Rewind(resourceVersion string) error {
	rv, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("sim: member %q: %w", m.name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for gr, t := range m.tables {
		if rv < t.compacted || rv > m.rv {
			return fmt.Errorf("sim: member %q: %s is not known as of %d", m.name, gr, rv)
		}
	}
	for _, t := range m.tables {
		t.rewind(rv)
	}
	m.rv = rv
	return nil
}

// chosen needs m.mu.
func (m *Member) chosen(kinds []schema.GroupResource) []*table {
	var out []*table
	if len(kinds) == 0 {
		for _, t := range m.tables {
			out = append(out, t)
		}
	}
	for _, gr := range kinds {
		if t := m.tables[gr]; t != nil {
			out = append(out, t)
		}
	}
	return out
}

// Cut refuses connections and resets those that exist, until Restore.
func (m *Member) Cut() { m.cutOff() }

// Restore listens again on the same address.
func (m *Member) Restore() error {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.net.closed {
		return errors.New("sim: the member is closed")
	}
	if !m.net.isCut {
		return nil
	}
	for m.net.serving > 0 {
		m.net.idle.Wait()
	}
	listener, err := net.Listen("tcp", m.address)
	if err != nil {
		return fmt.Errorf("sim: member %q: %w", m.name, err)
	}
	m.net.cut, m.net.isCut = make(chan struct{}), false
	m.serveLocked(listener)
	return nil
}

func (m *Member) serve(listener net.Listener) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.serveLocked(listener)
}

func (m *Member) serveLocked(listener net.Listener) {
	m.net.listener = listener
	server := &http.Server{
		Handler: http.HandlerFunc(m.handle),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{m.ca.server},
			ClientAuth:   tls.RequestClientCert, // a wrong one is 401, as with kube-apiserver
			MinVersion:   tls.VersionTLS12,
		},
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: m.opts.Streams},
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          slog.NewLogLogger(m.opts.Log.Handler(), slog.LevelDebug),
		ConnState:         m.connState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	m.net.serving++
	go func() {
		defer m.done()
		// It always fails, at the latest when the listener is closed; nobody could act on it.
		err := server.ServeTLS(listener, "", "")
		m.opts.Log.Debug("simulated API server ends", "member", m.name, "err", err)
	}()
}

func (m *Member) connState(c net.Conn, state http.ConnState) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	switch state {
	case http.StateNew:
		m.net.conns[c] = struct{}{}
		m.net.serving++
		if m.net.isCut {
			c.Close() // accepted as the cable was pulled
		}
	case http.StateClosed, http.StateHijacked:
		delete(m.net.conns, c)
		m.net.serving--
		m.net.idle.Broadcast()
	}
}

// enter counts a request in; false when the member is cut off.
func (m *Member) enter() (cut chan struct{}, ok bool) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.net.isCut {
		return nil, false
	}
	m.net.serving++
	return m.net.cut, true
}

func (m *Member) done() {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.net.serving--
	m.net.idle.Broadcast()
}

func (m *Member) cutOff() {
	m.net.mu.Lock()
	if m.net.isCut {
		m.net.mu.Unlock()
		return
	}
	m.net.isCut = true
	close(m.net.cut)
	m.net.listener.Close()
	conns := make([]net.Conn, 0, len(m.net.conns))
	for c := range m.net.conns {
		conns = append(conns, c)
	}
	m.net.mu.Unlock()
	for _, c := range conns {
		abort(c)
	}
}

// abort closes a connection with RST rather than FIN and close_notify.
func abort(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // without it the close is merely a polite one
	}
	c.Close()
}

func (m *Member) close() {
	m.cutOff()
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.net.closed = true
	for m.net.serving > 0 {
		m.net.idle.Wait()
	}
}
