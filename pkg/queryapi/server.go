package queryapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/fanout"
	"federator.dev/federator/pkg/queryapi/internal/resources"
)

// Server serves the query API. Its methods may be called from any goroutine.
type Server struct {
	options       Options
	log           *slog.Logger
	metrics       *metrics
	certs         *certificates
	audit         auditLog
	authenticator authenticator.Request
	tokens        authenticator.Token   // the same, of tokens
	certificates  authenticator.Request // and of client certificates; nil where none is trusted
	token         string                // of a local server
	authorizer    *authz.Authorizer
	hub           *http.Client  // nil without a hub
	fairness      *fairness     // nil: only the number of requests is limited
	requestShares *callerShares // of those in flight, without watches
	watchShares   *callerShares
	objects       *resources.Handler // get, list and watch
	catalog       *catalog.Catalog
	queries       map[string]Query
	openAPI       []byte       // of the queries
	tools         http.Handler // of what tools at /mcp ask; see serveMCP
	encoders      *encoders
	handler       http.Handler
	shared        *fanout.Handler // nil: this process has the fleet alone
	minted        *fanout.Revisions
	unions        unions
	pulse         *fanout.Pulse
	running       atomic.Pointer[lifetime]
	peers         http.Handler // see PeersHandler
	inflight      tracker
	started       atomic.Bool
}

// lifetime is how long requests last at most.
type lifetime struct{ watches, all context.Context }

// New returns a server that is ready to Run. It reads files and does not use the network;
// it takes ownership of Options.Listener.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, log: o.Logger, encoders: newEncoders(),
		requestShares: newCallerShares(o.Fairness.MaxInFlight, o.Local), watchShares: newCallerShares(o.Fairness.MaxWatches, o.Local),
	}
	if s.metrics, err = newMetrics(o.Metrics); err != nil {
		return nil, fmt.Errorf("query API: %w", err)
	}
	if s.certs, err = newCertificates(o); err != nil {
		return nil, err
	}
	if o.Local {
		s.token = newToken()
		s.authenticator, s.tokens = newLocalAuthenticator(s.token)
		s.authorizer = authz.Unrestricted()
	} else if err := s.connectHub(); err != nil {
		return nil, err
	}
	if s.audit, err = newAuditLog(o.Audit, o.Logger); err != nil {
		return nil, err
	}
	if err := s.assemble(); err != nil {
		return nil, err
	}
	s.tools = s.toolRequests()
	s.handler = s.chain()
	if s.shared != nil {
		if s.peers, err = s.peersChain(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// connectHub makes the clients of the hub.
func (s *Server) connectHub() error {
	o := s.options
	config := rest.CopyConfig(o.Hub)
	config.QPS = -1 // left to the hub's priority and fairness
	config.UserAgent = "federator/query"
	var err error
	if s.hub, err = rest.HTTPClientFor(config); err != nil {
		return fmt.Errorf("query API: hub: %w", err)
	}
	client, err := kubernetes.NewForConfigAndClient(config, s.hub)
	if err != nil {
		return fmt.Errorf("query API: hub: %w", err)
	}
	reviews := *s.hub
	reviews.Transport = newReviewLimiter(s.hub.Transport, int64(o.Authentication.Parallel))
	reviewer, err := kubernetes.NewForConfigAndClient(config, &reviews)
	if err != nil {
		return fmt.Errorf("query API: hub: %w", err)
	}
	if s.certs.clients != nil {
		s.certificates = newCertificateAuthenticator(s.certs.clients)
	}
	if s.authenticator, s.tokens, err = newAuthenticator(reviewer, o.Authentication, s.certificates); err != nil {
		return err
	}
	if o.Fairness.Priority {
		s.fairness = &fairness{client: client, log: s.log, maxInFlight: o.Fairness.MaxInFlight, timeout: o.Limits.Request}
	}
	s.authorizer, err = authz.New(authz.Options{
		Reviewer:       client.AuthorizationV1().SubjectAccessReviews(),
		MemberReviewer: o.Authorization.Members, UserPrefix: o.Authorization.UserPrefix, Namespaces: s.namespaces,
		Resources: s.resources,
		AllowTTL:  o.Authorization.AllowTTL, DenyTTL: o.Authorization.DenyTTL,
		Parallel: o.Authorization.Parallel, Now: o.Authorization.Now, Metrics: o.Metrics,
	})
	if err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	return nil
}

// Token returns the bearer token of a local server; "" with a hub.
func (s *Server) Token() string { return s.token }

// CertificateAuthority returns the CA of a self-signed serving certificate in PEM, else
// nil.
func (s *Server) CertificateAuthority() []byte { return s.certs.authority }

// Handler returns the server's handler, for use with or without TLS.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves until ctx ends: watches end at once, other requests get Limits.Drain. It
// returns when everything that it started has ended, with an error if the server failed.
// It can be called once.
func (s *Server) Run(ctx context.Context) error {
	if !s.started.CompareAndSwap(false, true) {
		return errors.New("query API: Run was called twice")
	}
	// Requests outlive ctx while they drain; watches end with ctx itself.
	requests, abandon := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), shutdownKey{}, ctx))
	defer abandon()
	s.running.Store(&lifetime{watches: ctx, all: requests})
	server := s.httpServer(requests)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var workers sync.WaitGroup
	workers.Go(func() { s.certs.run(background) })
	workers.Go(func() { s.objects.Run(background) })
	if s.fairness != nil {
		workers.Go(func() { s.fairness.run(background) })
	}
	if s.pulse != nil {
		workers.Go(func() {
			s.pulse.Run(background, func() <-chan struct{} { return s.options.Index.Newer(s.options.Index.Snapshot()) })
		})
		workers.Go(func() { s.shared.Run(background) })
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(tls.NewListener(s.options.Listener, server.TLSConfig)) }()
	s.log.Info("query API: serving", "address", s.options.Listener.Addr().String())
	var failure error
	select {
	case <-ctx.Done():
		failure = s.drain(requests, server)
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			failure = errors.Join(failure, fmt.Errorf("query API: serve: %w", err))
		}
	case err := <-served:
		failure = fmt.Errorf("query API: serve: %w", err)
		_ = server.Close() // the listener is closed already
	}
	abandon()
	<-s.inflight.drain()
	stop()
	workers.Wait()
	return errors.Join(failure, s.closeResources())
}

// drain lets requests in flight finish, up to Limits.Drain.
func (s *Server) drain(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Limits.Drain)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("query API: requests aborted at shutdown", "after", s.options.Limits.Drain)
		err = nil
		_ = server.Close() // closes all connections
	}
	if err != nil {
		return fmt.Errorf("query API: shut down: %w", err)
	}
	return nil
}

// Close closes a server that is not run.
func (s *Server) Close() error {
	s.started.Store(true)
	return errors.Join(s.options.Listener.Close(), s.closeResources())
}

func (s *Server) closeResources() error {
	if s.hub != nil {
		s.hub.CloseIdleConnections()
	}
	return s.audit.close()
}

func (s *Server) httpServer(requests context.Context) *http.Server {
	limits := s.options.Limits
	const frame = 64 << 10 // responses are large, requests are not
	return &http.Server{
		Handler:           s.handler,
		TLSConfig:         s.certs.config,
		BaseContext:       baseContext(requests),
		ReadHeaderTimeout: limits.Header, // of the TLS handshake, too
		IdleTimeout:       limits.Idle,
		MaxHeaderBytes:    limits.HeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          limits.Streams,
			MaxReadFrameSize:              frame,
			MaxReceiveBufferPerStream:     frame,
			MaxReceiveBufferPerConnection: min(limits.Streams, 1000) * frame,
			SendPingTimeout:               limits.Idle / 3,
			PingTimeout:                   limits.Header,
			WriteByteTimeout:              limits.Idle,
		},
	}
}

// namespaces returns the namespaces of a member, as far as the index has them.
func (s *Server) namespaces(member string) []string {
	list, err := s.options.Index.Snapshot().List(aggregate.Query{Kind: "Namespace", Members: []string{member}})
	if err != nil {
		return nil // cannot happen without field selectors
	}
	var out []string
	for o := range list {
		out = append(out, o.Name())
	}
	return out
}
