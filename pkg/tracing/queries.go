package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"federator.dev/federator/internal/clip"
)

// newQueries returns what traces queries. Clients choose much of what their spans say, so that it is bounded while it waits.
func newQueries(t *Tracer, res *resource.Resource) *sdk.TracerProvider {
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxQueryText
	return sdk.NewTracerProvider(sdk.WithResource(res), sdk.WithSpanProcessor(enqueuer{t}), sdk.WithRawSpanLimits(limits), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(t.opts.Sampling))))
}

// Queries returns what traces queries, nil where tracing is off: the API server's machinery samples them as changes are, or as callers do that it trusts.
func (t *Tracer) Queries() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.queries
}

// enqueuer passes spans of queries on.
type enqueuer struct{ t *Tracer }

// OnStart implements sdk.SpanProcessor.
func (enqueuer) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements sdk.SpanProcessor.
func (e enqueuer) OnEnd(s sdk.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		e.t.enqueue(spanRecord{s})
	}
}

// Shutdown implements sdk.SpanProcessor: Run ends.
func (enqueuer) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdk.SpanProcessor: Run sends.
func (enqueuer) ForceFlush(context.Context) error { return nil }

// spanRecord is a span of a query, whose texts are valid: one that is not, such as a header's, would cost all that is sent with it.
type spanRecord struct{ sdk.ReadOnlySpan }

func (r spanRecord) spans(_ context.Context, m *maker) { m.spans = append(m.spans, r) }

// Name implements sdk.ReadOnlySpan.
func (r spanRecord) Name() string { return queryText(r.ReadOnlySpan.Name()) }

// Attributes implements sdk.ReadOnlySpan.
func (r spanRecord) Attributes() []attribute.KeyValue { return queryTexts(r.ReadOnlySpan.Attributes()) }

// Events implements sdk.ReadOnlySpan.
func (r spanRecord) Events() []sdk.Event {
	out := append([]sdk.Event(nil), r.ReadOnlySpan.Events()...)
	for i := range out {
		out[i].Name, out[i].Attributes = queryText(out[i].Name), queryTexts(out[i].Attributes)
	}
	return out
}

// Status implements sdk.ReadOnlySpan.
func (r spanRecord) Status() sdk.Status {
	s := r.ReadOnlySpan.Status()
	s.Description = queryText(s.Description)
	return s
}

func queryText(s string) string { return clip.Text(s, maxQueryText) }

func queryTexts(all []attribute.KeyValue) []attribute.KeyValue {
	out := make([]attribute.KeyValue, len(all))
	for i, a := range all {
		switch a.Value.Type() {
		case attribute.STRING:
			a.Value = attribute.StringValue(queryText(a.Value.AsString()))
		case attribute.STRINGSLICE:
			texts := a.Value.AsStringSlice()
			for j := range texts {
				texts[j] = queryText(texts[j])
			}
			a.Value = attribute.StringSliceValue(texts)
		default: // not text
		}
		out[i] = a
	}
	return out
}
