package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// server is an HTTP server that is joined when it closes.
type server struct {
	name     string
	listener net.Listener
	http     *http.Server
	log      *slog.Logger
	done     sync.WaitGroup
	closing  sync.Once
	err      error // of closing
}

// drain is how long requests in flight may take when the server closes.
const drain = 5 * time.Second

// newServer listens, with TLS where config is not nil.
func newServer(ctx context.Context, name, addr string, h http.Handler, config *tls.Config, log *slog.Logger) (*server, error) {
	l, err := listenTCP(ctx, name, addr)
	if err != nil {
		return nil, err
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return &server{
		name: name, listener: l, log: log,
		http: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      90 * time.Second, // a CPU profile takes 30 s by default
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}, nil
}

// servingTLS returns the TLS configuration for a certificate in two files, nil without
// them. The files are read at each handshake, as mounted Secrets change. When they cannot
// be read, that is logged and the last good certificate is served.
func servingTLS(files config.ListenTLS, log *slog.Logger) (*tls.Config, error) {
	if files.CertFile == "" {
		return nil, nil
	}
	first, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("listen.tls: %w", err)
	}
	var good atomic.Pointer[tls.Certificate]
	good.Store(&first)
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
			if err != nil {
				log.Error("loading the certificate failed; serving the last good one", "server", "serve", "error", err)
				return good.Load(), nil
			}
			good.Store(&pair)
			return &pair, nil
		},
	}, nil
}

// start serves. A failure goes to failed, which is buffered.
func (s *server) start(failed chan<- error) {
	s.log.Info("listening", "server", s.name, "address", s.listener.Addr().String())
	s.done.Go(func() {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("listen.%s: %w", s.name, err)
		}
	})
}

// close lets requests in flight finish for a while, ends the rest and joins.
// It may be called again, and for a server that was not started.
func (s *server) close() error {
	s.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		if err := s.http.Shutdown(ctx); err != nil {
			s.err = errors.Join(fmt.Errorf("listen.%s: %w", s.name, err), s.http.Close())
		}
		s.listener.Close() // Shutdown has closed it unless Serve never ran
		s.done.Wait()
	})
	return s.err
}

// health answers the probes.
type health struct {
	fleet    *fleet.Fleet
	stopping atomic.Bool
}

// readyz answers 200 once every discovered member has synced or been given up
// on; else 503 and the members that it waits for.
func (h *health) readyz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if h.stopping.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "stopping")
		return
	}
	kept := h.fleet.Kept()
	if kept != "" {
		kept += "\n"
	}
	if h.fleet.Loading() {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "loading what was kept before the restart")
		return
	}
	ok, waiting := h.fleet.Manager.Ready()
	if ok {
		fmt.Fprintf(w, "ok\n%s", kept)
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintf(w, "waiting for:\n%s\n%s", strings.Join(waiting, "\n"), kept)
}

// publicHandler serves probes to everyone, and metrics to callers that the hub (nil for
// none) authorizes.
func publicHandler(h *health, registry *prometheus.Registry, hub *rest.Config, log *slog.Logger) (http.Handler, error) {
	metrics, err := onlyScrapers(hub, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// Two scrapers at once are plenty; each reads the whole fleet.
		MaxRequestsInFlight: 4,
		EnableOpenMetrics:   true, // which alone has exemplars
	}), log)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET "+metricsPath, metrics)
	return mux, nil
}

func adminHandler(f *fleet.Fleet, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /members", func(w http.ResponseWriter, r *http.Request) {
		q, err := fleet.ParseMemberParams(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		// Only a client that has gone away can make this fail.
		_ = json.NewEncoder(w).Encode(f.Status(q))
	})
	mux.HandleFunc("POST /audits", func(w http.ResponseWriter, r *http.Request) { serveAudits(f, w, r) })
	if withPprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return localOnly(mux)
}

// serveAudits audits a kind, of a member, and answers with a line for each result as it comes.
func serveAudits(f *fleet.Fleet, w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for name := range q {
		if name != "member" && name != "kind" {
			http.Error(w, fmt.Sprintf("unknown parameter %q", name), http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, flush := json.NewEncoder(w), http.NewResponseController(w)
	_ = flush.SetWriteDeadline(time.Time{}) // it takes as long as the budget of audits has it take
	// Only a client that has gone away can make writing fail.
	send := func(l fleet.AuditLine) {
		_ = lines.Encode(l)
		_ = flush.Flush()
	}
	err := f.Manager.Audit(r.Context(), q.Get("member"), aggregate.Kind(q.Get("kind")), func(a clusterinformers.AuditResult) { send(fleet.AuditLine{AuditResult: &a}) })
	end := &fleet.AuditEnd{Done: err == nil}
	if err != nil {
		end.Error = err.Error()
	}
	send(fleet.AuditLine{End: end})
}

// localOnly refuses callers that are not on this machine, and requests of web pages on it:
// DNS rebinding, where another host's name resolves to 127.0.0.1, and cross-site requests,
// which could start a profile even though the page never sees it.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !fromHere(r):
			http.Error(w, "not a loopback address", http.StatusForbidden)
		case !config.IsLoopback(hostname(r.Host)):
			http.Error(w, "not a loopback host", http.StatusForbidden)
		case ofAnotherSite(r):
			http.Error(w, "cross-site request rejected", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// fromHere reports whether a request came to a loopback address.
func fromHere(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

// ofAnotherSite reports whether a browser sends a request that the user did not
// type. http.CrossOriginProtection lets GET pass, which starts a profile here.
// Browsers that do not say what site a request is of still send its origin with
// what scripts fetch.
func ofAnotherSite(r *http.Request) bool {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "none", "same-origin":
		return false
	case "":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}
