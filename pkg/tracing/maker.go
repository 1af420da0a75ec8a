package tracing

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"federator.dev/federator/internal/clip"
)

// maker makes spans of records. It belongs to Run.
type maker struct {
	t       *Tracer
	tracer  trace.Tracer
	spans   []sdk.ReadOnlySpan // to be sent
	failing bool               // they could not be, the last time
}

func newMaker(t *Tracer, res *resource.Resource) *maker {
	m := &maker{t: t}
	provider := sdk.NewTracerProvider(sdk.WithResource(res), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(givenIDs{}), sdk.WithSpanProcessor(collector{enqueuer{t}, m}))
	m.tracer = provider.Tracer("federator.dev/federator")
	return m
}

// collector takes the spans that are made: they end at once, on Run's goroutine.
type collector struct {
	enqueuer
	m *maker
}

// OnEnd implements sdk.SpanProcessor.
func (c collector) OnEnd(s sdk.ReadOnlySpan) { c.m.spans = append(c.m.spans, s) }

// givenIDs are the IDs that a context has.
type givenIDs struct{}

type idsKey struct{}

func (givenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	sc, _ := ctx.Value(idsKey{}).(trace.SpanContext)
	return sc.TraceID(), sc.SpanID()
}

func (g givenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := g.NewIDs(ctx)
	return id
}

// made is a span to be made.
type made struct {
	trace      trace.TraceID
	id, parent trace.SpanID // no parent: it is the root
	stage      Stage
	from, to   Instant
	failed     bool
	attributes []attribute.KeyValue
	links      []trace.SpanContext
}

func (m *maker) add(ctx context.Context, s *made) {
	ctx = context.WithValue(ctx, idsKey{}, spanContext(s.trace, s.id))
	if s.parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, spanContext(s.trace, s.parent))
	}
	links := make([]trace.Link, len(s.links))
	for i, l := range s.links {
		links[i] = trace.Link{SpanContext: l}
	}
	_, span := m.tracer.Start(ctx, string(s.stage), trace.WithTimestamp(s.from.time()), trace.WithAttributes(s.attributes...), trace.WithLinks(links...), trace.WithSpanKind(kindOf(s.stage)))
	if s.failed {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(max(s.from, s.to).time())) // clocks may be set back
}

func kindOf(stage Stage) trace.SpanKind {
	switch stage {
	case Record, DryRun, Write, Outcome:
		return trace.SpanKindClient
	default:
		return trace.SpanKindInternal
	}
}

func spanContext(of trace.TraceID, id trace.SpanID) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: of, SpanID: id, TraceFlags: trace.FlagsSampled})
}

// text is an attribute; names and messages of members are bounded.
func text(key, value string) attribute.KeyValue {
	return attribute.String("federator."+key, clip.Text(value, maxText))
}

func number(key string, n uint64) attribute.KeyValue { return text(key, strconv.FormatUint(n, 10)) } // which may exceed int64

// changeRecord is a change until it was judged.
type changeRecord struct {
	Change
	why    string
	echoOf trace.SpanContext
}

func (r *changeRecord) spans(ctx context.Context, m *maker) {
	m.t.metrics.traces.WithLabelValues(r.why).Inc()
	id := m.t.ids.change(r.Revision)
	root := span(id, stageChange, 0)
	from := firstKnown(r.Read, r.Committed, r.Batch.Started, r.Intended)
	whole := &made{trace: id, id: root, stage: stageChange, from: from, to: max(from, r.Committed, r.Batch.Published), attributes: []attribute.KeyValue{
		text("member", r.Member), text("kind", r.Kind), text("namespace", r.Namespace), text("name", r.Name), number("revision", r.Revision), text("kept", r.why),
		text("resource_version", r.Version), attribute.Bool("federator.deleted", r.Deleted),
	}}
	if next := m.t.overtaken(&r.Change); next != 0 {
		whole.attributes = append(whole.attributes, number("overtaken_by", next))
		whole.links = append(whole.links, spanContext(m.t.ids.change(next), span(m.t.ids.change(next), stageChange, 0)))
	}
	if r.echoOf.IsValid() {
		whole.links = append(whole.links, r.echoOf)
	}
	m.add(ctx, whole)
	part := func(stage Stage, from, to Instant, links ...trace.SpanContext) {
		if from != 0 && to != 0 {
			m.add(ctx, &made{trace: id, id: span(id, stage, 0), parent: root, stage: stage, from: from, to: to, links: links})
		}
	}
	part(stageRead, r.Read, r.Began)
	part(stageDecode, r.Began, r.Decoded)
	part(stageCommit, r.Decoded, r.Committed)
	if b := &r.Batch; b.After != 0 {
		batch := m.t.ids.batch(b.After)
		part(stageBatch, firstKnown(r.Committed, b.Started), b.Started, spanContext(batch, span(batch, stageBatch, 0)))
		part(stageView, b.Started, b.Viewed)
		part(stageEvaluation, b.Viewed, b.Evaluated)
	}
}

func firstKnown(instants ...Instant) Instant {
	for _, i := range instants {
		if i != 0 {
			return i
		}
	}
	return 0
}

// batchRecord is a batch of the engine, with some of its changes that are traced.
type batchRecord struct {
	Batch
	changes []uint64
}

func (r *batchRecord) spans(ctx context.Context, m *maker) {
	id := m.t.ids.batch(r.After)
	root := span(id, stageBatch, 0)
	whole := &made{trace: id, id: root, stage: stageBatch, from: r.Started, to: r.Published, attributes: []attribute.KeyValue{number("before", r.Before), number("revision", r.After)}}
	for _, revision := range r.changes {
		change := m.t.ids.change(revision)
		whole.links = append(whole.links, spanContext(change, span(change, stageChange, 0)))
	}
	m.add(ctx, whole)
	if r.Viewed != 0 && r.Evaluated != 0 {
		m.add(ctx, &made{trace: id, id: span(id, stageView, 0), parent: root, stage: stageView, from: r.Started, to: r.Viewed})
		m.add(ctx, &made{trace: id, id: span(id, stageEvaluation, 0), parent: root, stage: stageEvaluation, from: r.Viewed, to: r.Evaluated})
	}
}

// correctionRecord is an attempt that has ended.
type correctionRecord struct {
	*Attempt

	seen sighting // zero: its write was not seen
}

func (r *correctionRecord) spans(ctx context.Context, m *maker) {
	e, of := &r.ended, &r.of
	whole := &made{trace: r.trace, id: r.root, stage: stageCorrection, from: r.began, to: max(r.at, r.seen.at), failed: e.Phase == "Failed" || e.Phase == "", attributes: []attribute.KeyValue{
		text("policy", of.Policy), text("action", e.Action), text("phase", e.Phase), text("message", e.Message), text("audit_id", e.AuditID),
		text("member", of.Target.Member), text("kind", of.Target.Kind), text("namespace", of.Target.Namespace), text("name", of.Target.Name),
	}}
	if id, err := trace.TraceIDFromHex(e.TraceID); err == nil && id != r.trace {
		whole.links = append(whole.links, spanContext(id, span(id, stageChange, 0)))
	}
	if c := r.cause; c != nil {
		whole.parent, whole.from = span(r.trace, stageChange, 0), firstKnown(c.Batch.Published, c.Intended, r.began)
	}
	m.add(ctx, whole)
	if c := r.cause; c != nil {
		m.add(ctx, &made{trace: r.trace, id: span(r.trace, stageIntent, uint64(r.began)), parent: r.root, stage: stageIntent, from: whole.from, to: c.Intended})
		m.add(ctx, &made{trace: r.trace, id: span(r.trace, stageGate, uint64(r.began)), parent: r.root, stage: stageGate, from: c.Intended, to: r.began})
	}
	written := r.began
	for _, s := range r.steps {
		m.add(ctx, &made{trace: r.trace, id: s.id, parent: s.parent, stage: s.stage, from: s.from, to: s.to, failed: s.failed})
		if s.stage == Write {
			written = s.from
		}
	}
	if r.seen.revision != 0 {
		echo := m.t.ids.change(r.seen.revision)
		m.add(ctx, &made{
			trace: r.trace, id: span(r.trace, stageEcho, uint64(r.began)), parent: r.root, stage: stageEcho, from: written, to: r.seen.at,
			links: []trace.SpanContext{spanContext(echo, span(echo, stageChange, 0))}, attributes: []attribute.KeyValue{number("revision", r.seen.revision)},
		})
	}
}
