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

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// DefaultCertificateLife is how long the certificate of an agent is valid.
const DefaultCertificateLife = 24 * time.Hour

const (
	minRetry   = time.Second
	maxRetry   = 30 * time.Second
	pruneEvery = time.Hour
	syncWait   = 10 * time.Second // for the Members, before agents are accepted of those that are known
)

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
}

// Server is where the agents of members connect.
type Server struct {
	o        Options
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	registry *registry
	joins    *rate.Limiter
	renewals *rate.Limiter
	tokens   *tokenReader
	http     *handedOver
	reload   trigger.Trigger // the CAs are others
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
	return &Server{
		o: o, client: client, dynamic: dyn, registry: newRegistry(o.MaxConns, o.CertificateLife),
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
	status := &statusWriter{client: s.dynamic, members: members, registry: s.registry, process: s.o.Process, failed: func(member string, err error) {
		s.o.Logger.Warn("writing the status of a Member failed", "member", member, "error", err)
	}}
	running.Go(func() { status.run(ctx) })

	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
		ConnState: s.http.connState, Protocols: new(http.Protocols),
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
	return err
}

// load takes the CAs of the Secret. What makes no sense is logged; where nothing does, the last CAs stay in use.
func (s *Server) load(secret *corev1.Secret) {
	if len(secret.Data) == 0 && s.authorities.Load() == nil {
		return // keep is about to make a CA
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

// keep creates what there must be on the hub, says which CAs there are, and drops tokens that have expired.
func (s *Server) keep(ctx context.Context) {
	retry := minRetry
	try := func(f func(context.Context) error) {
		for ctx.Err() == nil {
			limited, cancel := context.WithTimeout(ctx, hubTimeout)
			err := f(limited)
			cancel()
			if err == nil {
				retry = minRetry
				return
			}
			if ctx.Err() == nil {
				s.o.Logger.Warn("agents: the hub refuses, retrying", "error", err)
			}
			_ = sleep.For(ctx, retry) // the loop sees that ctx is done
			retry = min(2*retry, maxRetry)
		}
	}
	try(func(ctx context.Context) error { return ensureAuthority(ctx, s.client, s.o.Namespace, time.Now()) })
	var warned [sha256.Size]byte // of which CA it was said that it expires
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	for {
		select {
		case <-s.reload:
			warned = s.warn(warned)
			try(func(ctx context.Context) error {
				return s.authorities.Load().publish(ctx, s.client, s.o.Namespace, time.Now())
			})
		case <-prune.C:
			if s.authorities.Load() != nil {
				s.reload.Fire() // somebody may have changed what is said, and one may be about to expire
			}
			if err := s.prune(ctx); err != nil && ctx.Err() == nil {
				s.o.Logger.Debug("dropping expired tokens failed", "error", err) // the next time, or another process
			}
		case <-ctx.Done():
			return
		}
	}
}

// warn says once of a CA that it is the newest, and expires.
func (s *Server) warn(warned [sha256.Size]byte) [sha256.Size]byte {
	now := time.Now()
	last := s.authorities.Load().newest(now)
	if last.cert == nil {
		return warned
	}
	if digest := identity.Digest(last.cert); digest != warned && last.cert.NotAfter.Sub(now) < warnBefore {
		s.o.Logger.Warn("the newest CA of agents expires, and all agents have to join again then: make another with federator agent rotate-ca", "ca", last.name, "expires", last.cert.NotAfter)
		return digest
	}
	return warned
}

func (s *Server) prune(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	secrets := s.client.CoreV1().Secrets(s.o.Namespace)
	kept, err := secrets.Get(ctx, TokenSecret, metav1.GetOptions{})
	if err != nil || !prune(kept, time.Now()) {
		return err
	}
	_, err = secrets.Update(ctx, kept, metav1.UpdateOptions{})
	return err
}

// certificate returns federator's own, made anew for another CA and before it expires.
func (s *Server) certificate() (*tls.Certificate, *authorities, error) {
	all, now := s.authorities.Load(), time.Now()
	by := all.oldest(now)
	if by.key == nil {
		return nil, nil, errNoAuthority
	}
	digest := identity.Digest(by.cert)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving == nil || s.by != digest || s.serving.Leaf.NotAfter.Sub(now) < s.serving.Leaf.NotAfter.Sub(s.made)/2 {
		c, err := by.serving(s.o.Hosts, now)
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
