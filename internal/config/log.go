package config

import (
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

// NewLogger returns the logger of a valid configuration, and redirects client-go's lines
// to it. klog keeps its logger in package state and
// must not be in use meanwhile.
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
	return log, nil
}
