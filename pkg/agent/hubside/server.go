package hubside

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/authority"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// DefaultCertificateLife is how long the certificate of an agent is valid.
const DefaultCertificateLife = 24 * time.Hour

// syncWait is how long Members are waited for, before agents are accepted of those that are known.
const syncWait = 10 * time.Second

// Options say where agents connect. Hub, Namespace, Listener, Hosts and Logger are required.
type Options struct {
	Hub        *rest.Config
	Namespace  string       // of federator on the hub: the Secrets are there
	Namespaces []string     // of Members; none means all
	Listener   net.Listener // of TCP; Run closes it
	// Hosts are the names and addresses that agents reach the listener by, for its certificate.
	Hosts []string
	// CertificateLife is how long certificates of agents are valid. 0: a day.
	CertificateLife time.Duration
	// Process names this process in the statuses of Members.
	Process string
	// MaxConns bounds the connections of all agents. 0: 16,384.
	MaxConns int
	Logger   *slog.Logger
	Metrics  prometheus.Registerer // nil: none
}

// Server is where the agents of members connect.
type Server struct {
	o        Options
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	registry *registry
	metrics  *metrics
	joins    *rate.Limiter
	renewals *rate.Limiter
	tokens   *tokenReader
	http     *handedOver
	reload   trigger.Trigger // the CAs are others, or a Secret is missing
	loaded   chan struct{}   // closed once there are CAs
	loading  sync.Once

	// Of connections: those that handshake, by address, and those that send requests, by Member and by address.
	handshakes, ofAgents, ofStrangers *shares

	authorities atomic.Pointer[authorities]

	mu      sync.Mutex
	serving *tls.Certificate
	by      [sha256.Size]byte // the digest of the CA that it is of
	made    time.Time
}

// New returns a server, or what is wrong with its options. Nothing runs yet.
func New(o Options) (*Server, error) {
	switch {
	case o.Hub == nil, o.Namespace == "", o.Listener == nil, o.Logger == nil:
		return nil, errors.New("agents: Hub, Namespace, Listener and Logger are required")
	case len(o.Hosts) == 0:
		return nil, errors.New("agents: Hosts is required: the names or addresses that agents reach federator by")
	case o.CertificateLife < 0 || o.MaxConns < 0:
		return nil, errors.New("agents: CertificateLife and MaxConns must not be negative")
	}
	o.CertificateLife, o.MaxConns = cmp.Or(o.CertificateLife, DefaultCertificateLife), cmp.Or(o.MaxConns, defaultMaxConns)
	hub := rest.CopyConfig(o.Hub)
	hub.QPS = -1 // what agents ask for is bounded here
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	dyn, err := dynamic.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	registry := newRegistry(o.MaxConns, o.CertificateLife)
	metrics, err := newMetrics(registry, o.Metrics)
	if err != nil {
		return nil, err
	}
	return &Server{
		o: o, client: client, dynamic: dyn, registry: registry, metrics: metrics,
		joins: rate.NewLimiter(joinRate, 2*joinRate), renewals: rate.NewLimiter(renewRate, 2*renewRate),
		tokens: newTokenReader(client.CoreV1().Secrets(o.Namespace)),
		http:   newHandedOver(o.Listener.Addr()), reload: trigger.New(), loaded: make(chan struct{}),
		handshakes: newShares(maxHandshakes, maxHandshakes/2), ofAgents: newShares(maxOfAgents, maxOfAgent), ofStrangers: newShares(maxOfStrangers, maxOfStrangers/2),
	}, nil
}

// DialAgent implements clusterinformers.Agents.
func (s *Server) DialAgent(ctx context.Context, member, uid string) (net.Conn, error) {
	c, err := s.registry.take(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("member %s: %w", member, err)
	}
	return c, nil
}

// Run lets agents connect until ctx is done. It returns when all that it started has ended, and all connections are
// closed. What it needs of the hub it waits for.
func (s *Server) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	members, err := newMemberInformers(s.dynamic, s.o.Namespaces, s.registry, s.o.Logger)
	if err != nil {
		return fmt.Errorf("agents: %w", err)
	}
	secret, err := s.newSecretInformer(AuthoritySecret, s.load)
	if err != nil {
		return fmt.Errorf("agents: %w", err)
	}
	members.run(ctx, &running)
	running.Go(func() { secret.RunWithContext(ctx) })
	running.Go(func() { s.keep(ctx) })
	s.tokens.ctx = ctx
	status := &statusWriter{client: s.dynamic, members: members, registry: s.registry, process: s.o.Process, failed: func(member string, err error) {
		s.o.Logger.Warn("writing the status of a Member failed", "member", member, "error", err)
	}}
	running.Go(func() { status.run(ctx) })

	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState:   s.http.connState, Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	server.SetKeepAlivesEnabled(false) // agents send one request
	var accepting sync.WaitGroup
	accepting.Go(func() { _ = server.Serve(s.http) }) // until it is closed
	failed := make(chan error, 1)
	accepting.Go(func() {
		select { // before, everybody would be refused
		case <-s.loaded:
		case <-ctx.Done():
			return
		}
		soon, cancel := context.WithTimeout(ctx, syncWait)
		members.synced(soon)
		cancel()
		failed <- s.accept(ctx)
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("agents: %w", err)
	}
	s.o.Listener.Close()
	server.Close()
	s.registry.close()
	cancel()
	accepting.Wait()
	s.http.running.Wait() // requests end with their connections
	return err
}

// load takes the CAs of the Secret. What makes no sense is logged; where nothing does, the last CAs stay in use.
func (s *Server) load(secret *corev1.Secret) {
	if len(secret.Data) == 0 {
		s.reload.Fire() // keep fills it
		return
	}
	name, now := secret.Namespace+"/"+secret.Name, time.Now()
	all, skipped, err := parseAuthorities(secret.Data, now)
	for _, err := range skipped {
		s.o.Logger.Error("a CA of agents is not usable", "secret", name, "error", err)
	}
	if err != nil {
		s.o.Logger.Error("the CAs of agents are not usable", "secret", name, "error", err)
		return
	}
	s.registry.trust(all.digests()) // before, so that none that was dropped gets in between
	s.authorities.Store(&all)
	s.loading.Do(func() { close(s.loaded) })
	s.reload.Fire()
}

// certificate returns federator's own, made again for another CA and before it expires.
func (s *Server) certificate() (*tls.Certificate, *authorities, error) {
	all, now := s.authorities.Load(), time.Now()
	by := all.oldest(now)
	if by.Key == nil {
		return nil, nil, authority.ErrNone
	}
	digest := identity.Digest(by.Cert)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving == nil || s.by != digest || s.serving.Leaf.NotAfter.Sub(now) < s.serving.Leaf.NotAfter.Sub(s.made)/2 {
		c, err := serving(by, s.o.Hosts, now)
		if err != nil {
			return nil, nil, err
		}
		s.serving, s.by, s.made = c, digest, now
	}
	return s.serving, all, nil
}

// tls is how connections of agents are secured now.
func (s *Server) tls() (*tls.Config, error) {
	cert, all, err := s.certificate()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert},
		NextProtos: []string{joining.Protocol, "http/1.1"},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: identity.Pool(all.certificates()),
		SessionTicketsDisabled: true, // a resumed session would not be verified by the CAs of now
	}, nil
}
