package tracing_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"federator.dev/federator/internal/component"
	"federator.dev/federator/pkg/tracing"
	"federator.dev/federator/test/otlp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a tracer with a real receiver.
type rig struct {
	*tracing.Tracer
	receiver *otlp.Receiver
	stop     func()
}

const start = tracing.Instant(1_800_000_000_000_000_000)

func newRig(t *testing.T, set func(*tracing.Options)) *rig {
	t.Helper()
	r := &rig{receiver: otlp.Listen(t, nil)}
	exporter, err := tracing.NewExporter(t.Context(), tracing.Receiver{Endpoint: r.receiver.Endpoint, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	opts := tracing.Options{Exporter: exporter, Installation: "installation", Judged: true, Clock: func() time.Time { return time.Unix(0, int64(start)) }}
	if set != nil {
		set(&opts)
	}
	if r.Tracer, err = tracing.New(opts); err != nil {
		t.Fatal(err)
	}
	r.stop = run(t, r.Tracer)
	return r
}

// run runs a tracer until what it returns is called, or the test ends.
func run(t *testing.T, tr *tracing.Tracer) (stop func()) {
	c := component.Start(context.WithoutCancel(t.Context()), tr.Run, nil)
	stop = sync.OnceFunc(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// commit tells the rig of a commit of changes of ConfigMaps with these names, read at an instant. The last one is of the revision.
func (r *rig) commit(revision uint64, read tracing.Instant, names ...string) tracing.Exemplar {
	stamps := make([]tracing.Stamp, len(names))
	for i, name := range names {
		stamps[i] = tracing.Stamp{
			Namespace: "shop", Name: name, Version: fmt.Sprint(1000 + revision - uint64(len(names)-i-1)), Position: i + 1, Read: read, Began: read + 1000, Decoded: read + 2000,
		}
	}
	return r.Committed(&tracing.Commit{Member: "fleet/eu", Kind: "ConfigMap", Revision: revision, Changes: len(names), At: read + 3000}, stamps)
}

// batch tells the rig that what was committed after a revision was judged, up to another.
func (r *rig) batch(before, after uint64, started tracing.Instant) map[string]string {
	return r.Evaluated(tracing.Batch{Before: before, After: after, Started: started, Viewed: started + 1000, Evaluated: started + 2000, Published: started + 3000})
}

// traced ends the rig and returns the spans of a change's trace, by name.
func (r *rig) traced(t *testing.T, revision uint64) map[string]otlp.Span {
	t.Helper()
	r.stop()
	id, ok := r.TraceOf("fleet/eu", "ConfigMap", revision)
	if !ok {
		t.Fatal("there is no ID")
	}
	out := map[string]otlp.Span{}
	for _, s := range r.receiver.Trace(id.String()) {
		if _, twice := out[s.Name]; twice {
			t.Errorf("span %q was sent twice", s.Name)
		}
		out[s.Name] = s
	}
	return out
}

// kept remembers the names of spans after its end.
type kept struct {
	*tracetest.InMemoryExporter

	names []string
}

// ExportSpans implements sdk.SpanExporter.
func (k *kept) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	for _, s := range spans {
		k.names = append(k.names, s.Name())
	}
	return k.InMemoryExporter.ExportSpans(ctx, spans)
}
