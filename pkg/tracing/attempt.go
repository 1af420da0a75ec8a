package tracing

import (
	"context"
	"math"

	"go.opentelemetry.io/otel/trace"
)

const maxInstant = Instant(math.MaxInt64)

// Correction is what an Attempt is about.
type Correction struct {
	Policy string
	Target Object
	Name   string // of the Action, as far as it is known before; it identifies a correction that no change has caused
}

// Attempt is one attempt to correct an object. A nil Attempt notes nothing.
type Attempt struct {
	t     *Tracer
	of    Correction
	cause *Change // nil: a person's request
	trace trace.TraceID
	root  trace.SpanID // of span correction
	began Instant
	steps []step
	open  []int // of steps, the innermost last
	echo  *echo
	ended Ended
	at    Instant // when it ended
}

// step is a span of an attempt.
type step struct {
	stage      Stage
	id, parent trace.SpanID
	from, to   Instant
	failed     bool
}

// Ended is how an attempt has ended.
type Ended struct {
	Action, Phase, Message, AuditID string
	// TraceID is that of the Action's record: another process may have begun it in a trace of its own.
	TraceID string
	// Written says that the target was written: Version is its resourceVersion then; "" for a deletion.
	Written bool
	Version string
}

type attemptKey struct{}

// Begin begins an attempt at a correction that a change has caused, or no change, which is nil. The context that it returns is that of the
// attempt's requests.
func (t *Tracer) Begin(ctx context.Context, cause *Change, of Correction) (context.Context, *Attempt) {
	if t == nil {
		return ctx, nil
	}
	a := &Attempt{t: t, of: of, cause: cause, began: At(t.opts.Clock())}
	if cause != nil {
		a.trace = t.ids.change(cause.Revision)
	} else {
		a.trace = t.ids.named(of.Name)
	}
	a.root = span(a.trace, stageCorrection, mix(hash(of.Name))^uint64(a.began))
	return context.WithValue(ctx, attemptKey{}, a), a
}

func attemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// Start begins a stage of the attempt that a context is of, and returns what ends it.
func Start(ctx context.Context, stage Stage) (end func(error)) {
	a := attemptOf(ctx)
	if a == nil {
		return func(error) {}
	}
	n := len(a.steps)
	a.steps = append(a.steps, step{stage: stage, id: span(a.trace, stage, mix(uint64(a.began))^hash(a.of.Name)^uint64(n)), parent: a.current(), from: At(a.t.opts.Clock())})
	a.open = append(a.open, n)
	if stage == Write {
		a.expectEcho()
	}
	return func(err error) {
		a.steps[n].to, a.steps[n].failed = At(a.t.opts.Clock()), err != nil
		a.open = a.open[:len(a.open)-1]
	}
}

// current returns the innermost span that has begun and not ended.
func (a *Attempt) current() trace.SpanID {
	if len(a.open) == 0 {
		return a.root
	}
	return a.steps[a.open[len(a.open)-1]].id
}

// Traceparent returns the header of that name of W3C's Trace Context for a request of the context's attempt, "" where there is none.
func Traceparent(ctx context.Context) string {
	a := attemptOf(ctx)
	if a == nil {
		return ""
	}
	return "00-" + a.trace.String() + "-" + a.current().String() + "-01"
}

// TraceID returns the ID of the trace of the context's attempt in hexadecimal, "" where there is none.
func TraceID(ctx context.Context) string {
	a := attemptOf(ctx)
	if a == nil {
		return ""
	}
	return a.trace.String()
}

// End ends the attempt. What has written waits for its echo.
func (a *Attempt) End(e Ended) {
	if a == nil {
		return
	}
	a.ended, a.at = e, At(a.t.opts.Clock())
	if a.echo == nil || !a.t.await(a.echo) {
		a.finish(nil)
	}
}

// Drop ends the attempt as if it had not been made: it is made again later.
func (a *Attempt) Drop() {
	if a != nil && a.echo != nil {
		a.t.forget(a.echo)
	}
}

// finish hands the trace over, with the echo, nil for none.
func (a *Attempt) finish(seen *sighting) {
	t := a.t
	if c := a.cause; c != nil {
		id := t.ids.change(c.Revision)
		t.mu.Lock()
		change := t.sentLocked(id)
		batch := c.Batch.After != 0 && t.sentLocked(t.ids.batch(c.Batch.After))
		t.mu.Unlock()
		if batch {
			t.enqueue(&batchRecord{c.Batch, []uint64{c.Revision}})
		}
		if change {
			t.enqueue(&changeRecord{Change: *c, why: keptAction})
		}
	}
	r := &correctionRecord{Attempt: a}
	if seen != nil {
		r.seen = *seen
	}
	t.enqueue(r)
}
