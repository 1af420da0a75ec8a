package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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

// drain is how long requests under way may take when the server closes.
const drain = 5 * time.Second

func newServer(ctx context.Context, name, addr string, h http.Handler, log *slog.Logger) (*server, error) {
	l, err := listenTCP(ctx, name, addr)
	if err != nil {
		return nil, err
	}
	return &server{
		name: name, listener: l, log: log,
		http: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      90 * time.Second, // a CPU profile takes 30 s unless told otherwise
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}, nil
}

// start serves. A failure goes to failed, which has room for it.
func (s *server) start(failed chan<- error) {
	s.log.Info("listening", "server", s.name, "address", s.listener.Addr().String())
	s.done.Go(func() {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("listen.%s: %w", s.name, err)
		}
	})
}

// close lets requests under way finish for a while, ends the rest and joins.
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

// health is what the probes tell.
type health struct {
	manager  *clusterinformers.Manager
	stopping atomic.Bool
}

// readyz answers 200 once every discovered member has synced or been given up
// on; else 503 and who is waited for.
func (h *health) readyz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if h.stopping.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "stopping")
		return
	}
	ok, waiting := h.manager.Ready()
	if ok {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintf(w, "waiting for:\n%s\n", strings.Join(waiting, "\n"))
}

func publicHandler(h *health, registry *prometheus.Registry, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// Two scrapers at once are plenty; each reads the whole fleet.
		MaxRequestsInFlight: 4,
	}))
	return mux
}

// membersAnswer is what /members gives.
type membersAnswer struct {
	Revision aggregate.Revision              `json:"revision"`
	Time     time.Time                       `json:"time"`
	Ready    bool                            `json:"ready"`
	Members  []clusterinformers.MemberStatus `json:"members"`
}

// answer returns the members, with their scopes if asked for.
func (f *fleet) answer(details bool) membersAnswer {
	ready, _ := f.manager.Ready()
	a := membersAnswer{
		Revision: f.index.Snapshot().Revision(), Time: time.Now(), Ready: ready,
		Members: []clusterinformers.MemberStatus{},
	}
	for _, m := range f.manager.Members() {
		if !details {
			m.Details = nil
		}
		a.Members = append(a.Members, m)
	}
	slices.SortFunc(a.Members, func(a, b clusterinformers.MemberStatus) int { return strings.Compare(a.Name, b.Name) })
	return a
}

func adminHandler(f *fleet, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /members", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		for key := range q {
			if key != "details" {
				http.Error(w, fmt.Sprintf("parameter %q is not known", key), http.StatusBadRequest)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		// The client being gone is all that can fail here.
		_ = json.NewEncoder(w).Encode(f.answer(q.Get("details") == "true"))
	})
	if withPprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return localOnly(mux)
}

// localOnly refuses requests whose Host is not this machine's loopback: a web
// page that has its name resolve to 127.0.0.1 must not read what is local.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !loopback(host) {
			http.Error(w, "not a loopback host", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
