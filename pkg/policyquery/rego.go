package policyquery

import (
	"bufio"
	"cmp"
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
	"federator.dev/federator/pkg/policyquery/internal/pulled"
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

	// MaxPulled bounds the bytes that a query may read of members that other processes judge; 0 means the constant.
	MaxPulled int64

	limiter limiter
	pulling limiter // queries that have pulled something: a slot of it is taken before one of limiter
}

var _ queryapi.PartServer = &Rego{}

// Bounds of one query.
const (
	queryTimeout = 5 * time.Second
	maxReadBytes = 64 << 20
	maxRows      = 10_000
	readTimeout  = 15 * time.Second // write deadline of the response
)

// MaxPulled is the default of Rego.MaxPulled.
const MaxPulled = 256 << 20

// Serve implements queryapi.Query.
func (q *Rego) Serve(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	if _, err := regoOf(r); err != nil {
		return err
	}
	snapshot, views, documents, asOf := q.source()
	reader, err := newCallerReader(r.Context(), caller, q.Kinds, snapshot)
	if err != nil {
		return err
	}
	reader.onlyHolders = true
	return q.answer(w, r, reader, policy.QueryOptions{Snapshot: snapshot, Views: views, External: documents, AsOf: asOf}, func(*policy.Answer) {})
}

// regoOf returns the query of a request.
func regoOf(r *http.Request) (string, error) {
	values := r.URL.Query()
	for name := range values {
		if !slices.ContainsFunc(regoParameters, func(p queryapi.Parameter) bool { return p.Name == name }) {
			return "", apierrors.NewBadRequest("parameter " + name + " is not supported")
		}
	}
	if len(values["query"]) != 1 || values.Get("query") == "" {
		return "", apierrors.NewBadRequest("parameter query is required, once: the Rego to evaluate")
	}
	return values.Get("query"), nil
}

// answer evaluates a query as often as it reads kinds whose grants have not been fetched, and writes the result.
func (q *Rego) answer(w http.ResponseWriter, r *http.Request, reader *callerReader, o policy.QueryOptions, amend func(*policy.Answer)) error {
	o.Timeout, o.MaxRead, o.MaxRows = queryTimeout, maxReadBytes, maxRows
	for {
		missing, sources, err := q.try(w, r, reader, o, amend)
		if err != nil || missing == nil && !sources {
			return err
		}
		if err := reader.fetch(o.Snapshot, missing); err != nil { // without a slot: the hub may be slow
			return err // grants are unknown, not denied
		}
		if sources {
			if err := reader.fetchSources(o.External); err != nil {
				return err
			}
		}
	}
}

// try evaluates a query in one of the caller's slots, and writes the result. A query that
// reads kinds whose grants have not been fetched is cancelled: these kinds are returned, or that it is PolicySources, and
// the query must be retried with their grants.
func (q *Rego) try(w http.ResponseWriter, r *http.Request, reader *callerReader, o policy.QueryOptions, amend func(*policy.Answer)) (missing []aggregate.Kind, sources bool, err error) {
	user := reader.caller.User().GetName()
	if err := q.limiter.acquire(r.Context(), user); err != nil {
		return nil, false, err
	}
	defer q.limiter.release(user) // after the result is written: it is in memory until then
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	asking := &probingReader{snapshotReader{reader, o.Snapshot}, cancel, nil, false}
	o.Reader = asking
	answer, err := policy.Query(ctx, o, r.URL.Query().Get("query"))
	if (asking.missing != nil || asking.sources) && r.Context().Err() == nil {
		return asking.missing, asking.sources, nil
	}
	if err != nil {
		return nil, false, regoError(err)
	}
	amend(answer)
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readTimeout)) // if supported
	writeRows(w, answer)                                                            // the client may be gone
	return nil, false, nil
}

// regoError is the response for the error of a query.
func regoError(err error) error {
	switch {
	case errors.Is(err, policy.ErrQuery):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, policy.ErrQueryLimit):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	return err
}

// ServeShared implements queryapi.Sharer: the query is evaluated here, over what this process has and what the others send of
// what it reads, as far as the caller may read it in each of them. Members that no process answers for are there,
// and what they have is Unknown.
func (q *Rego) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	text, err := regoOf(r)
	if err != nil {
		return err
	}
	reads, err := policy.ReadsOf(text)
	if err != nil {
		return regoError(err)
	}
	if members, all := reads.Of(); !all && !slices.ContainsFunc(members, func(m string) bool { return !fleet.Judge(m) }) {
		return q.Serve(w, r, caller)
	}
	user := caller.User().GetName()
	if err := q.pulling.acquire(r.Context(), user); err != nil {
		return err
	}
	defer q.pulling.release(user) // what is pulled is in memory until then
	index, err := pulled.New(cmp.Or(q.MaxPulled, MaxPulled))
	if err != nil {
		return err
	}
	parts, err := fleet.Pull(r.URL.Query(), nil, index.Take)
	if tooLarge := (*pulled.TooLargeError)(nil); errors.As(err, &tooLarge) {
		return apierrors.NewRequestEntityTooLargeError(tooLarge.Error())
	}
	if err != nil {
		return err
	}
	return q.answerShared(w, r, caller, reads, index, parts)
}

// answerShared answers a query when all that it reads of others has been pulled.
func (q *Rego) answerShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, reads *policy.QueryReads, index *pulled.Index, parts *queryapi.Parts) error {
	o := policy.QueryOptions{}
	o.Snapshot, o.Views, o.External, o.AsOf = q.source()
	missing := missingMembers(o.Snapshot, parts)
	if err := addUnknown(index, o.Snapshot, reads, missing); err != nil {
		return err
	}
	if reads.Views {
		if err := q.addTold(index); err != nil {
			return err
		}
	}
	var err error
	if o.Others, err = index.Snapshot(); err != nil {
		return err
	}
	reader, err := newCallerReader(r.Context(), caller, q.Kinds, o.Snapshot)
	if err != nil {
		return err
	}
	reader.onlyHolders = true
	var elsewhere []string
	for m := range o.Others.Members() {
		elsewhere = append(elsewhere, m.Name)
	}
	if err := reader.addElsewhere(elsewhere, o.Others); err != nil {
		return err
	}
	kinds, _ := reads.Kinds()
	if err := reader.fetch(o.Snapshot, kinds); err != nil {
		return err // grants are unknown, not denied
	}
	absent, _, err := caller.VisibleIn(r.Context(), missing)
	if err != nil {
		return err
	}
	return q.answer(w, r, reader, o, func(a *policy.Answer) { a.Revision, a.Absent = parts.Revision, absent })
}

// missingMembers returns the members that no process answers for, in order, and those that this one does not have any more, or yet.
func missingMembers(own *aggregate.Snapshot, parts *queryapi.Parts) []string {
	missing := slices.Clone(parts.Absent)
	for _, name := range parts.Here {
		if _, ok := own.Member(name); !ok {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// addUnknown adds members of which nothing is known, where this process does not read them either.
func addUnknown(index *pulled.Index, own *aggregate.Snapshot, reads *policy.QueryReads, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	kinds, all := reads.Kinds()
	if all {
		kinds = slices.Collect(own.Kinds())
	}
	var scopes []pulled.Scope
	for _, kind := range kinds {
		scopes = append(scopes, pulled.Scope{
			Kind: kind, Resource: own.Resource("", kind), Status: aggregate.Status{State: aggregate.Unknown, Reason: "no process that lives answers for the member"},
		})
	}
	for _, name := range missing {
		if _, ok := own.Member(name); ok {
			continue
		}
		if err := index.Add(aggregate.Member{Name: name}, scopes); err != nil {
			return err
		}
	}
	return nil
}

// addTold adds the scopes of which other processes have told policies: by them it is decided who may read entries of views.
func (q *Rego) addTold(index *pulled.Index) error {
	if q.State == nil {
		return nil
	}
	state := q.State()
	if state == nil || state.Told() == nil {
		return nil
	}
	for m := range state.Told().Members() {
		for s := range state.Told().Scopes(m.Name) {
			if err := index.AddScope(m.Name, pulled.Scope{Kind: s.Kind, Resource: s.Resource, Status: s.Status}); err != nil {
				return err
			}
		}
	}
	return nil
}

// ServePart implements queryapi.PartServer: what the query reads of the members that this process answers for, as far as the
// caller may read it.
func (q *Rego) ServePart(r *http.Request, caller queryapi.Caller, to *queryapi.PartWriter) error {
	text, err := regoOf(r)
	if err != nil {
		return err
	}
	reads, err := policy.ReadsOf(text)
	if err != nil {
		return regoError(err)
	}
	snapshot, _, _, _ := q.source()
	members, err := to.Begin(snapshot)
	if err != nil || to.Here() {
		return err
	}
	if of, all := reads.Of(); !all {
		members = slices.DeleteFunc(members, func(m string) bool { return !slices.Contains(of, m) })
	}
	reader, err := newReaderAmong(r.Context(), caller, q.Kinds, members)
	if err != nil {
		return err
	}
	reader.onlyHolders = true
	send := pulled.Sender{
		Snapshot: snapshot, Reads: reads, Reader: snapshotReader{reader, snapshot}, Failed: func() error { return reader.err }, To: pulled.Writer{Item: to.Item},
	}
	return send.Send(r.Context(), reader.visible)
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
	if answer.Absent != nil {
		_, _ = out.WriteString(`,"absent":`)
		part(answer.Absent)
	}
	if answer.External != nil {
		_, _ = out.WriteString(`,"external":`)
		part(answer.External)
	}
	_, _ = out.WriteString("}\n")
	_ = out.Flush()
}

// source returns the snapshot, views and external documents of the newest verdicts, or the newest snapshot
// where there are no policies, and the time: not before that of verdicts, if the clock
// was set back.
func (q *Rego) source() (*aggregate.Snapshot, policy.Views, *policy.External, time.Time) {
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
			return s.Snapshot, s.Views(), s.External(), asOf
		}
	}
	return q.Index.Snapshot(), nil, nil, asOf
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
