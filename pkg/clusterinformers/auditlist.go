package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/audit"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// capture is what a listWatch holds: all that the member had at a resourceVersion.
type capture struct {
	resourceVersion string // "": compare with the newest
	snapshot        *aggregate.Snapshot
	// exact says that the member has sent all up to the resourceVersion: of that of an event there
	// may be another event.
	exact    bool
	bookmark bool // it was taken when a bookmark came
	at       time.Time
	leftOut  map[audit.Key]audit.Digest
	unkept   bool      // more may be left out, of which that is not known
	left     uint64    // the newest resourceVersion of what the rule of the kind does not keep
	until    time.Time // when the audit gives up
}

// captureRequest asks a listWatch for what it holds, now or when the next bookmark comes.
type captureRequest struct {
	bookmark bool
	reply    chan *capture // has room; nil: nothing that could be audited
	ready    func()        // called after the reply
}

// repair asks a listWatch to list. done is closed once it has.
type repair struct {
	begun bool // the task's
	done  chan struct{}
}

// answerCapture answers who wants to audit the listWatch, in the task.
func (p *listWatch) answerCapture(now time.Time, bookmark bool) {
	r := p.captures.Load()
	if r == nil || r.bookmark && !bookmark || !p.captures.CompareAndSwap(r, nil) {
		return
	}
	if err := p.commit(); err != nil {
		p.checkCommit(now, err)
	}
	r.reply <- p.capture(now, bookmark)
	r.ready()
}

// capture returns what is held, nil where that is not kept up to date. Nothing of the listWatch is
// left to commit. bookmark says that a bookmark came last.
func (p *listWatch) capture(now time.Time, bookmark bool) *capture {
	if p.watch == nil || p.suspect || p.machine.Listing() {
		return nil
	}
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.state != aggregate.Synced || p.reached == "" {
		return nil
	}
	if i.committed != i.applied && i.commitLocked() != nil {
		return nil
	}
	rv := p.applied
	if !bookmark && olderThan(rv, p.reached) {
		rv = p.reached // what came last came out of order
	}
	c := &capture{
		resourceVersion: rv, snapshot: i.member.manager.opts.Index.Newest(), exact: bookmark || p.floor == rv, bookmark: bookmark, at: now,
		leftOut: maps.Clone(p.leftOut.versions), unkept: p.leftOut.unkept, left: p.retention.newestLeft(),
	}
	return c
}

// capture returns what a listWatch holds: as of the bookmark that was waited for, else now.
func (a *auditor) capture(ctx context.Context, p *listWatch) *capture {
	if r := p.audit.bookmark; r != nil {
		p.audit.bookmark = nil
		select {
		case c := <-r.reply:
			return c
		default: // there was none
			p.captures.CompareAndSwap(r, nil)
			return nil
		}
	}
	r := &captureRequest{reply: make(chan *capture, 1), ready: func() {}}
	p.captures.Store(r)
	p.task.Wake()
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	select {
	case c := <-r.reply:
		return c
	case <-p.informer.done:
	case <-ctx.Done():
		p.captures.CompareAndSwap(r, nil)
	}
	return nil
}

// report counts and shows what was lost.
func (a *auditor) report(p *listWatch, r *AuditResult) {
	mm, total := a.member.manager.metrics.member(a.member.name), 0
	for cause, name := range audit.Causes {
		mm.lost[cause].Add(float64(r.Differences[name]))
		total += r.Differences[name]
	}
	spec := a.member.currentSpec()
	loss := Loss{Member: a.member.name, Object: spec.Object, Kind: r.Kind, Namespace: r.Namespace, Time: time.Now(), Differences: r.Differences, Example: r.Examples[0]}
	a.mu.Lock()
	a.lost += uint64(total)
	a.newest = loss
	a.mu.Unlock()
	p.informer.log().Warn("events were lost: what is held differs from the member's, listing it again",
		"differences", r.Differences, "example", loss.Example, "resourceVersion", r.ResourceVersion)
	if f := a.member.manager.opts.OnLoss; f != nil {
		f(loss)
	}
}

// order has a scope listed again.
func (a *auditor) order(p *listWatch) *repair {
	order := &repair{done: make(chan struct{})}
	p.repairs.Store(order)
	p.task.Wake()
	p.audit.failures, p.audit.refusals, p.audit.notBefore = 0, 0, time.Time{}
	return order
}

// relisted waits, for who has asked for the audit, for the list that was ordered, and reports whether
// that is done before long.
func (a *auditor) relisted(ctx context.Context, p *listWatch, order *repair) (done bool) {
	if !a.isAsked(p) {
		return false
	}
	timer := time.NewTimer(relistPatience)
	defer timer.Stop()
	select {
	case <-order.done:
		return true
	case <-p.informer.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// Pages of audits.
const (
	auditPage    = 500
	auditTimeout = 30 * time.Second
	// auditTime is how long the pages of one list may be spread over, auditDeadline how long an
	// audit may last with all its lists: resourceVersions are compacted after five minutes, and as long
	// as it lasts it keeps a snapshot, and all other kinds of the member waiting.
	auditTime     = 90 * time.Second
	auditDeadline = 4*time.Minute + 30*time.Second
)

// auditLimits are how many objects a page may have. They are halved where it is too large, of metadata
// and of objects apart, and grow again after each audit that has come to an end.
type auditLimits struct{ metadata, content int64 }

func (l *auditLimits) init(sample int) {
	if l.metadata == 0 {
		l.metadata, l.content = auditPage, int64(min(sample, auditPage))
	}
}

func (l auditLimits) grown(sample int) auditLimits {
	return auditLimits{min(2*l.metadata, auditPage), min(2*l.content, int64(sample), auditPage)}
}

// metadataAccept asks for metadata and, from servers that do not know that, for objects.
const metadataAccept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

var (
	errNotExact = errors.New("the member does not list at a resourceVersion")
	errOverlong = fmt.Errorf("the audit has not come to an end within %s", auditDeadline)
)

// read compares what was captured with what the member lists.
func (a *auditor) read(ctx context.Context, p *listWatch, c *capture, r *AuditResult) (audit.Result, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, c.until, errOverlong)
	defer cancel()
	i := p.informer
	part := audit.Part{
		Snapshot: c.snapshot, Member: i.member.name, Kind: i.kind, Namespace: p.namespace, LeftOut: c.leftOut, Subset: p.retention != nil, NewerThan: c.left,
	}
	if !c.exact {
		part.At = c.resourceVersion
	}
	pages := &auditPages{auditor: a, listWatch: p, capture: c, comparison: audit.Compare(part), result: r, resourceVersion: c.resourceVersion, sample: a.member.manager.opts.Audit.Sample}
	held, _ := i.scope.Size()
	pages.bound = audit.BoundOf(held, p.retention != nil)
	p.audit.limits.init(pages.sample)
	p.audit.sampledTo = 0
	for more := true; more; {
		var err error
		if more, err = pages.next(ctx); err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errOverlong) {
				err = cause
			}
			return audit.Result{}, err
		}
	}
	found := pages.comparison.Result()
	r.Objects, r.Bodies = found.Listed, found.Bodies
	return found, nil
}

// auditPages are the pages of a list that is compared. One of them, another one each time, is of
// objects and not of metadata alone.
type auditPages struct {
	*auditor
	listWatch  *listWatch
	capture    *capture
	comparison *audit.Comparison
	result     *AuditResult
	sample     int
	bound      audit.Bound

	read            int  // objects
	sampled         bool // there was the page of objects
	continuation    string
	resourceVersion string // of all pages, once there was one
}

// next reads a page, and reports whether there is another.
func (g *auditPages) next(ctx context.Context) (more bool, err error) {
	p := g.listWatch
	whole, limit := g.sample > 0 && !g.sampled && g.read >= p.audit.sampled, &p.audit.limits.metadata
	if whole {
		limit = &p.audit.limits.content
	}
	opts := metav1.ListOptions{Continue: g.continuation, Limit: *limit}
	if g.sample > 0 && g.read < p.audit.sampled {
		opts.Limit = min(int64(p.audit.sampled-g.read), opts.Limit)
	}
	if g.continuation == "" && g.capture.resourceVersion != "" {
		opts.ResourceVersion, opts.ResourceVersionMatch = g.capture.resourceVersion, metav1.ResourceVersionMatchExact
	}
	if err := g.wait(ctx); err != nil {
		return false, err
	}
	before := g.read
	meta, err := g.page(ctx, &opts, whole)
	switch {
	case errors.Is(err, decode.ErrTooLarge) && opts.Limit > 1:
		*limit = max(1, opts.Limit/2)
		return true, nil
	case err != nil:
		return false, err
	case g.resourceVersion == "" && g.continuation == "": // of what is newest
		g.resourceVersion = meta.ResourceVersion
	case meta.ResourceVersion != g.resourceVersion:
		// Of any page: where others are newer, what is in flight would be taken for lost.
		return false, fmt.Errorf("listed at resourceVersion %.40q instead of %.40q: %w", meta.ResourceVersion, g.resourceVersion, errNotExact)
	}
	if whole {
		g.sampled, p.audit.sampledTo = true, g.read
	}
	if g.continuation = meta.Continue; g.continuation == "" {
		return false, nil
	}
	return true, g.bound.Page(g.read-before, opts.Limit)
}

// wait waits for the budgets, if not so long that the member forgets the resourceVersion
// meanwhile: that of the first page was waited for before anything was captured.
func (g *auditPages) wait(ctx context.Context) error {
	now := time.Now()
	delay := g.reserve(now).Sub(now)
	g.reserved = time.Time{}
	held, _ := g.listWatch.informer.scope.Size()
	pages := 1 + held/int(g.listWatch.audit.limits.metadata)
	if delay = min(delay, auditTime/time.Duration(pages)); delay > 0 {
		return sleep.For(ctx, delay)
	}
	return ctx.Err()
}

// page requests and compares one page, of objects or of metadata.
func (g *auditPages) page(ctx context.Context, opts *metav1.ListOptions, whole bool) (decode.ListMeta, error) {
	p, mb := g.listWatch, g.member
	client := mb.conn.current()
	if client == nil {
		return decode.ListMeta{}, ErrUnreachable
	}
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	defer client.Track(cancel)()
	get := p.do
	if !whole {
		get = func(ctx context.Context, c *memberclient.Client, o *metav1.ListOptions) (io.ReadCloser, decode.Encoding, error) {
			return p.get(ctx, c, o, metadataAccept)
		}
	}
	body, encoding, err := get(ctx, client, opts)
	g.result.Requests++
	if err != nil {
		return decode.ListMeta{}, err
	}
	defer body.Close()
	limit := mb.manager.opts.Budget.ResponseBytes
	large, release := p.largeList(ctx)
	defer release()
	raw, charged, err := p.readPage(body, limit, large)
	defer func() { _ = p.chargeResponse(-charged) }() //nolint:errcheck // less is never refused
	g.budget.Spend(time.Now(), 0, int64(len(raw)))
	g.result.Bytes += int64(len(raw))
	switch {
	case err != nil:
		return decode.ListMeta{}, err
	case int64(len(raw)) > limit:
		return decode.ListMeta{}, fmt.Errorf("page of an audit of more than %d bytes: %w", limit, decode.ErrTooLarge)
	case whole:
		return g.compareObjects(raw, encoding)
	}
	return decode.Identities(raw, encoding, func(id decode.Identity) error {
		g.read++
		return g.comparison.Add(audit.Item{Namespace: id.Namespace, Name: id.Name, UID: id.UID, ResourceVersion: id.ResourceVersion})
	})
}

// compareObjects compares a page of objects, content included.
func (g *auditPages) compareObjects(raw []byte, encoding decode.Encoding) (decode.ListMeta, error) {
	d, err := g.listWatch.informer.decoder(encoding)
	if err != nil {
		return decode.ListMeta{}, err
	}
	return d.List(raw, func(rec *aggregate.Record, unfit error) error {
		g.read++
		item := audit.Item{Namespace: rec.Namespace, Name: rec.Name, UID: rec.UID, ResourceVersion: rec.ResourceVersion, Body: rec.Body}
		if unfit != nil {
			item.Body = nil
		}
		return g.comparison.Add(item)
	})
}

// reserve charges the budgets for the next request, once, and returns when it may be sent.
func (a *auditor) reserve(now time.Time) time.Time {
	if a.reserved.IsZero() {
		a.reserved = now.Add(max(a.budget.Reserve(now), a.member.manager.audits.reserve(now)))
	}
	return a.reserved
}

// fleetBudget is what the audits of all members may cost.
type fleetBudget struct {
	mu     sync.Mutex
	budget audit.Budget
}

func (f *fleetBudget) reserve(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.budget.Reserve(now)
}
