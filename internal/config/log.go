package config

import (
	"io"
	stdlog "log"
	"log/slog"

	"k8s.io/klog/v2"
)

// NewLogger returns the logger of a valid configuration, and redirects client-go's lines to
// it, and those of the standard library at level debug: net/http's HTTP/2 has one for each
// frame of a member that it does not know. klog and log keep their loggers in package state; klog's must
// not be in use meanwhile.
func NewLogger(w io.Writer, cfg Log) (*slog.Logger, error) {
	level, err := parseLevel(cfg.Level)
	if err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(w, opts)
	if cfg.Format == "json" {
		handler = slog.NewJSONHandler(w, opts)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log.With("from", "client-go"))
	stdlog.SetFlags(0)
	stdlog.SetOutput(io.Discard) // which costs nothing
	if level <= slog.LevelDebug {
		stdlog.SetOutput(slog.NewLogLogger(log.With("from", "net/http").Handler(), slog.LevelDebug).Writer())
	}
	return log, nil
}
