package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"

	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/pkg/tracing"
)

// newTracer returns what follows changes, and what sends that until its context ends; nil where nothing is traced. Nothing runs yet.
func newTracer(ctx context.Context, cfg *config.Config, installation string, log *slog.Logger, metrics prometheus.Registerer) (*tracing.Tracer, func(context.Context) error, error) {
	if cfg.Traces.Endpoint == "" {
		return nil, component.Idle, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("OpenTelemetry reports an error", "error", err) })) // otherwise written to standard error
	exporter, err := tracing.NewExporter(ctx, cfg.Traces.Receiver())
	if err != nil {
		return nil, nil, fmt.Errorf("traces.%w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "federator"
	}
	t, err := tracing.New(tracing.Options{
		Exporter: exporter, Installation: installation, Instance: cmp.Or(cfg.Shards.Name, host), Version: version(),
		Sampling: cfg.Traces.Sampling, Slow: cfg.Traces.Slow, Judged: cfg.Policies.Hub || cfg.Policies.Library || len(cfg.Policies.Dirs) > 0,
		Logger: log, Metrics: metrics,
	})
	if err != nil {
		return nil, nil, err
	}
	return t, t.Run, nil
}
