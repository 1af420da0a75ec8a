package tracing

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Options configure a Tracer.
type Options struct {
	// Exporter takes spans. Run shuts it down. Required.
	Exporter sdk.SpanExporter
	// Installation is the ID of the installation, within which revisions never repeat.
	Installation string
	// Instance is the name of this process; Version that of the program. They describe the resource of the spans.
	Instance, Version string
	// Sampling is the share of the changes to trace that are neither slow nor lead to an Action, and of queries: 0 to 1.
	Sampling float64
	// Slow is how long a change may take from when it is read until it is judged (or committed, where nothing judges), before it is
	// traced for that. 0: none is slow. Of slow ones at most SlowRate a second are traced. 0: 10.
	Slow     time.Duration
	SlowRate int
	// Judged says that there is a policy engine, which calls Evaluated. Without it traces of changes end with the commit.
	Judged bool
	// Changes is of how many changes the instants are known. It is a power of two; 0: 32,768, which take 6 MiB.
	Changes int
	// Queue is how many traces and spans may wait to be sent. 0: 4,096.
	Queue int
	// EchoAfter is how long a write may take to come back before its trace ends without it. 0: 30 s.
	EchoAfter time.Duration
	// EndWithin bounds how long Run sends what waits once its context is done. 0: 5 s.
	EndWithin time.Duration
	// Clock says when attempts begin and end. nil: time.Now.
	Clock   func() time.Time
	Logger  *slog.Logger          // nil: none
	Metrics prometheus.Registerer // nil: none
}

// Bounds.
const (
	defaultChanges  = 1 << 15
	defaultQueue    = 4096
	defaultSlowRate = 10
	defaultEcho     = 30 * time.Second
	defaultEnd      = 5 * time.Second

	maxBatches   = 256 // that are known
	maxSent      = 4096
	maxEchoes    = 4096 // writes whose echo is awaited
	maxSightings = 8    // of a target whose write is under way
	maxLinks     = 64   // of a batch to its changes
	maxText      = 256  // bytes of an attribute
	maxQueryText = 1024 // of one of a query, which has its URL
	maxExport    = 512  // spans sent at once
)

func (o *Options) setDefaults() error {
	switch {
	case o.Exporter == nil:
		return errors.New("tracing: Exporter is required")
	case math.IsNaN(o.Sampling) || o.Sampling < 0 || o.Sampling > 1:
		return fmt.Errorf("tracing: Sampling is %g, must be between 0 and 1", o.Sampling)
	case o.Slow < 0 || o.SlowRate < 0 || o.Changes < 0 || o.Queue < 0 || o.EchoAfter < 0 || o.EndWithin < 0:
		return errors.New("tracing: negative bound")
	}
	o.SlowRate, o.Changes, o.Queue, o.EchoAfter = cmp.Or(o.SlowRate, defaultSlowRate), cmp.Or(o.Changes, defaultChanges), cmp.Or(o.Queue, defaultQueue), cmp.Or(o.EchoAfter, defaultEcho)
	o.EndWithin = cmp.Or(o.EndWithin, defaultEnd)
	if o.Changes&(o.Changes-1) != 0 {
		return fmt.Errorf("tracing: Changes is %d, must be a power of two", o.Changes)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
