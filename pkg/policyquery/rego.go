package policyquery

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

// Rego serves /query/v1/rego?query=…, over what the caller may list. The number of queries
// that run at once is bounded, in all and per caller. It is safe for concurrent use, and
// must not be copied after first use.
type Rego struct {
	Index *aggregate.Index
	Kinds Kinds
	State func() *policy.State // of the policy engine; nil without policies
	Clock func() time.Time     // nil means time.Now

	limiter limiter
}

// Bounds of one query.
const (
	queryTimeout = 5 * time.Second
	maxReadBytes = 64 << 20
	maxRows      = 10_000
	readTimeout  = 15 * time.Second // write deadline of the response
)

// Serve implements queryapi.Query.
func (q *Rego) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	values := r.URL.Query()
	for name := range values {
		if !slices.ContainsFunc(regoParameters, func(p queryapi.Parameter) bool { return p.Name == name }) {
			return apierrors.NewBadRequest("parameter " + name + " is not supported")
		}
	}
	if len(values["query"]) != 1 || values.Get("query") == "" {
		return apierrors.NewBadRequest("parameter query is required, once: the Rego to evaluate")
	}
	snapshot, views, asOf := q.source()
	reader, err := newCallerReader(r.Context(), caller, q.Kinds, snapshot)
	if err != nil {
		return err
	}
	reader.onlyHolders = true
	for {
		missing, err := q.try(w, r, reader, policy.QueryOptions{
			Snapshot: snapshot, Views: views, AsOf: asOf, Timeout: queryTimeout, MaxRead: maxReadBytes, MaxRows: maxRows,
		})
		if err != nil || missing == nil {
			return err
		}
		for _, kind := range missing { // without a slot: the hub may be slow
			if reader.grantsOf(snapshot, kind, snapshot.Resource("", kind)); reader.err != nil {
				return reader.err // grants are unknown, not denied
			}
		}
	}
}

// try evaluates a query in one of the caller's slots, and writes the result. A query that
// reads kinds whose grants have not been fetched is cancelled: these kinds are returned, and
// the query must be retried with their grants.
func (q *Rego) try(w http.ResponseWriter, r *http.Request, reader *callerReader, o policy.QueryOptions) (missing []aggregate.Kind, err error) {
	user := reader.caller.User().GetName()
	if err := q.limiter.acquire(r.Context(), user); err != nil {
		return nil, err
	}
	defer q.limiter.release(user) // after the result is written: it is in memory until then
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	asking := &probingReader{snapshotReader{reader, o.Snapshot}, cancel, nil}
	o.Reader = asking
	answer, err := policy.Query(ctx, o, r.URL.Query().Get("query"))
	if asking.missing != nil && r.Context().Err() == nil {
		return asking.missing, nil
	}
	return nil, q.write(w, answer, err)
}

// write writes a result, or returns the error of the query.
func (*Rego) write(w http.ResponseWriter, answer *policy.Answer, err error) error {
	switch {
	case errors.Is(err, policy.ErrQuery):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, policy.ErrQueryLimit):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	case err != nil:
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readTimeout)) // if supported
	writeRows(w, answer)                                                            // the client may be gone
	return nil
}

// writeRows writes a result as JSON row by row, so that the text is never in memory at once.
func writeRows(w io.Writer, answer *policy.Answer) {
	out := bufio.NewWriter(w)
	part := func(v any) bool {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // it was decoded from JSON
		}
		_, err = out.Write(text)
		return err == nil
	}
	_, _ = out.WriteString(`{"revision":`)
	part(answer.Revision)
	_, _ = out.WriteString(`,"asOf":`)
	part(answer.AsOf)
	_, _ = out.WriteString(`,"rows":[`)
	for i, row := range answer.Rows {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if !part(row) {
			return
		}
	}
	_, _ = out.WriteString(`],"readBytes":`)
	part(answer.Read)
	_, _ = out.WriteString("}\n")
	_ = out.Flush()
}

// source returns the snapshot and views of the newest verdicts, or the newest snapshot
// where there are no policies, and the time: not before that of verdicts, if the clock
// was set back.
func (q *Rego) source() (*aggregate.Snapshot, policy.Views, time.Time) {
	now := time.Now
	if q.Clock != nil {
		now = q.Clock
	}
	asOf := now()
	if q.State != nil {
		if s := q.State(); s != nil {
			if s.AsOf.After(asOf) {
				asOf = s.AsOf
			}
			return s.Snapshot, s.Views(), asOf
		}
	}
	return q.Index.Snapshot(), nil, asOf
}

// Bounds of the queries of all callers together: each may use a processor and twice
// maxReadBytes of memory.
const (
	maxRunning         = 4               // at once
	maxPerCaller       = 2               // at once
	maxQueuedPerCaller = 8               // waiting
	queueTimeout       = 5 * time.Second // in the queue
)

// limiter bounds the queries that run at once, in all and per caller. Others wait in order
// of arrival, up to queueTimeout; those of a caller that has reached its own limit are
// passed over. The zero value is ready to use.
type limiter struct {
	mu       sync.Mutex
	running  int
	byCaller map[string]int // running, by caller
	waiting  []*waiter
}

// waiter is a query in the queue.
type waiter struct {
	caller string
	ready  chan struct{} // closed when it may run
}

// acquire waits for a slot. The error is a 429 or the context's; without an error, release
// must be called.
func (t *limiter) acquire(ctx context.Context, caller string) error {
	t.mu.Lock()
	if t.running < maxRunning && t.byCaller[caller] < maxPerCaller {
		t.startLocked(caller)
		t.mu.Unlock()
		return nil
	}
	n := 0
	for _, w := range t.waiting {
		if w.caller == caller {
			n++
		}
	}
	if n >= maxQueuedPerCaller {
		t.mu.Unlock()
		return apierrors.NewTooManyRequests(fmt.Sprintf("%d of your Rego queries are already running or waiting, please try again later", maxPerCaller+maxQueuedPerCaller), 1)
	}
	w := &waiter{caller, make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	timer := time.NewTimer(queueTimeout)
	defer timer.Stop()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.ready: // just now
		if ctx.Err() == nil {
			return nil
		}
		t.endLocked(caller)
		return context.Cause(ctx)
	default:
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(x *waiter) bool { return x == w })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return apierrors.NewTooManyRequests("too many concurrent Rego queries, please try again later", int(queueTimeout/time.Second))
}

// release releases a slot.
func (t *limiter) release(caller string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked(caller)
}

// startLocked and endLocked count; the caller holds t.mu.
func (t *limiter) startLocked(caller string) {
	if t.byCaller == nil {
		t.byCaller = map[string]int{}
	}
	t.running++
	t.byCaller[caller]++
}

func (t *limiter) endLocked(caller string) {
	t.running--
	if t.byCaller[caller]--; t.byCaller[caller] == 0 {
		delete(t.byCaller, caller)
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(w *waiter) bool {
		if t.running >= maxRunning || t.byCaller[w.caller] >= maxPerCaller {
			return false
		}
		t.startLocked(w.caller)
		close(w.ready)
		return true
	})
}
