package tracing

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer follows changes. A nil Tracer does nothing.
type Tracer struct {
	opts    Options
	ids     ids
	sampler sampler
	metrics *metrics
	queue   chan record
	maker   *maker
	queries *sdk.TracerProvider

	mu         sync.Mutex
	slots      []slot // a change's is at its revision, modulo their number
	mask       uint64
	batches    [maxBatches]Batch
	nextBatch  int
	evaluated  uint64 // the newest revision that was
	slowSecond Instant
	slowTraced int
	sent       map[trace.TraceID]bool
	sentOrder  [maxSent]trace.TraceID
	nextSent   int

	awaited atomic.Int64 // number of echoes
	echoMu  sync.Mutex   // taken before mu
	echoes  map[Object][]*echo
}

// record is what spans are made of.
type record interface {
	spans(ctx context.Context, m *maker)
}

// New returns a tracer that does not send before Run.
func New(opts Options) (*Tracer, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	t := &Tracer{
		opts: opts, ids: newIDs(opts.Installation), sampler: newSampler(opts.Sampling), queue: make(chan record, opts.Queue),
		slots: make([]slot, opts.Changes), mask: uint64(opts.Changes - 1), sent: map[trace.TraceID]bool{}, echoes: map[Object][]*echo{},
	}
	t.metrics = newMetrics(t)
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(t.metrics); err != nil {
			return nil, fmt.Errorf("tracing: metrics: %w", err)
		}
	}
	res := resource.NewSchemaless(
		attribute.String("service.name", "federator"), attribute.String("service.version", opts.Version), attribute.String("service.instance.id", opts.Instance),
		attribute.String("federator.installation", opts.Installation),
	)
	t.maker = newMaker(t, res)
	t.queries = newQueries(t, res)
	return t, nil
}

// enqueue hands records to Run, or drops them.
func (t *Tracer) enqueue(records ...record) {
	for _, r := range records {
		select {
		case t.queue <- r:
		default:
			t.metrics.dropped.WithLabelValues("queue").Inc()
		}
	}
}

// Bounds of sending.
const (
	flushInterval = time.Second
	exportTimeout = 10 * time.Second
)

// Run sends what is traced until ctx is done, and then what waits, for as long as EndWithin says. Its error is the context's.
func (t *Tracer) Run(ctx context.Context) error {
	// What is being sent when ctx ends is sent.
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	end := time.AfterFunc(math.MaxInt64, cancel)
	defer end.Stop()
	defer context.AfterFunc(ctx, func() { end.Reset(t.opts.EndWithin) })()
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case r := <-t.queue:
			if r.spans(sending, t.maker); len(t.maker.spans) >= maxExport {
				t.export(sending)
			}
		case <-tick.C:
			t.expire(At(t.opts.Clock()))
			t.export(sending)
		}
	}
	t.end(sending)
	return context.Cause(ctx)
}

// end sends what waits, and ends the exporter.
func (t *Tracer) end(ctx context.Context) {
	t.expire(maxInstant)
	for {
		select {
		case r := <-t.queue:
			if r.spans(ctx, t.maker); len(t.maker.spans) >= maxExport {
				t.export(ctx)
			}
			continue
		default:
		}
		break
	}
	t.export(ctx)
	if err := t.opts.Exporter.Shutdown(ctx); err != nil {
		t.opts.Logger.Warn("ending the exporter of traces failed", "error", err)
	}
}

// export sends the spans that have been made. What cannot be sent is dropped.
func (t *Tracer) export(ctx context.Context) {
	spans := t.maker.spans
	if len(spans) == 0 {
		return
	}
	t.maker.spans = nil
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	err := t.opts.Exporter.ExportSpans(ctx, spans)
	switch {
	case err == nil:
		t.metrics.exported.Add(float64(len(spans)))
		if t.maker.failing {
			t.opts.Logger.Info("traces are sent again")
		}
	default:
		t.metrics.unsent.Add(float64(len(spans)))
		if !t.maker.failing {
			t.opts.Logger.Warn("sending traces failed; they are dropped until it succeeds", "error", err)
		}
	}
	t.maker.failing = err != nil
}
