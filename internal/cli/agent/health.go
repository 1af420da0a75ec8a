package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"federator.dev/federator/internal/exit"
)

// serveHealth says at an address whether the agent lives and is connected, while something runs.
func serveHealth(ctx context.Context, address string, ready func() bool, log *slog.Logger, run func(context.Context) error) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return exit.BadInput(fmt.Errorf("--health-listen: %w", err))
	}
	log.Info("listening", "server", "health", "address", l.Addr().String())
	server := &http.Server{Handler: health(ready), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("nothing is served at --health-listen any more", "error", err)
		}
	}()
	defer func() {
		_ = server.Close() // nobody has to be told
		<-ended
	}()
	return run(ctx)
}

// health answers whether the agent is connected to a process of federator.
func health(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "the agent is not connected to federator", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
