package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// errOverBudget ends a listWatch that would exceed its member's budget.
var errOverBudget = errors.New("over budget")

// listWatch is one list and watch of a scope: all of a kind, or one namespace of it.
// A client-go Reflector drives it; its store is the index.
type listWatch struct {
	informer  *informer
	namespace string

	// Of the informer's mu:
	state        aggregate.State
	reason       string
	cause        string // of the next relist
	aheadOfScope size   // charged for items of a list under way, beyond what the scope holds
	leftOut      leftOut
	retention    *retention // nil where all is kept

	reached string // the newest resourceVersion since the listWatch started

	stream      *stream            // the Reflector's goroutine only
	stop        context.CancelFunc // ends the Reflector
	overBudget  string             // why the budget is exceeded; the Reflector's goroutine only
	failed      *panicError        // of the stream's goroutine, which has ended
	listedPages size               // listed so far; the list's goroutine only

	pageLimit int64 // objects of a page where pages have been too large, else 0; the list's goroutine only

	lists gate // lists under way: the Reflector does not wait for them when it is stopped
}

// gate lets calls in until it is closed, and waits for those inside.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside.Add(1)
	}
	return !g.closed
}

func (g *gate) leave() { g.inside.Done() }

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
}

func (g *gate) wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}

var (
	_ cache.ReflectorStore         = (*listWatch)(nil)
	_ cache.ReflectorBookmarkStore = (*listWatch)(nil)
)

func newListWatch(i *informer, namespace string) *listWatch {
	p := &listWatch{informer: i, namespace: namespace, cause: "initial", state: aggregate.Unknown, retention: newRetention(i.rule, i.member.quota.Limits)}
	if st := i.scope.Status(); st.State == aggregate.Synced || st.State == aggregate.Partial || st.State == aggregate.Stale {
		// Objects of an earlier informer are there: as of the last contact.
		p.state, p.reason = aggregate.Stale, "relisting"
	}
	return p
}

// Delays between lists that fail for other reasons than the connection, which
// has its own.
const (
	minListDelay   = 200 * time.Millisecond
	maxListDelay   = 15 * time.Second
	listDelayReset = 30 * time.Second // of watching reset the delay
)

const (
	overBudgetDelay  = 2 * time.Minute
	overBudgetJitter = time.Minute
)

// run lists and watches until ctx is done, or until something panics.
func (p *listWatch) run(ctx context.Context) error {
	i := p.informer
	outer := ctx
	ctx, p.stop = context.WithCancel(outer)
	p.failed, p.overBudget = nil, ""
	p.checkList("") // what was reached before no longer counts: the first list may be answered from any cache
	defer p.chargeListed(size{})
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	defer p.join()
	if p.retention != nil && p.retention.ttl > 0 {
		sweeping.Go(func() { p.evictPeriodically(ctx) })
	}
	p.lists.open()
	p.listAndWatch(klog.NewContext(ctx, logr.Discard()))
	p.join()
	p.flush()
	if p.failed != nil {
		return p.failed
	}
	if p.overBudget == "" {
		return nil
	}
	i.emptyOverBudget(p)
	_ = sleep.For(outer, overBudgetDelay+rand.N(overBudgetJitter)) //nolint:errcheck // the caller looks at ctx
	return nil
}

// join ends what the Reflector has started, and waits for it.
func (p *listWatch) join() {
	p.stop()
	if s := p.stream; s != nil {
		s.Stop()
	}
	p.lists.wait()
}

func (p *listWatch) reflector() *cache.Reflector {
	logger := logr.Discard()
	lw := &cache.ListWatch{ListWithContextFunc: p.ListWithContext, WatchFuncWithContext: p.WatchWithContext}
	r := cache.NewReflectorWithOptions(lw, nil, p, cache.ReflectorOptions{
		Logger: &logger, Name: p.informer.member.name + "/" + string(p.informer.kind), TypeDescription: string(p.informer.kind),
	})
	r.MaxInternalErrorRetryDuration = time.Minute
	return r
}

// listAndWatch lists and watches until ctx is done. It is the Reflector's own loop,
// but that errors come to us: they make the scope's state.
func (p *listWatch) listAndWatch(ctx context.Context) {
	r, delay := p.reflector(), minListDelay
	for {
		started := time.Now()
		if err := r.ListAndWatchWithContext(ctx); err != nil {
			p.watchError(ctx, err)
			if classify(err) == unsupported {
				r = p.reflector() // the resourceVersion may be what is refused, and this one lists with no other
			}
		}
		if time.Since(started) > listDelayReset {
			delay = minListDelay
		}
		if sleep.For(ctx, delay+rand.N(delay)/2) != nil {
			return
		}
		delay = min(2*delay, maxListDelay)
	}
}

// watchError takes the end of a list or watch into the scope's state.
func (p *listWatch) watchError(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	i := p.informer
	i.member.conn.recordKindError(i.kind, err)
	switch classify(err) {
	case forbidden:
		i.setState(p, aggregate.Forbidden, err.Error())
	case notServed:
		i.setState(p, aggregate.Unknown, err.Error())
		i.member.triggerDiscovery()
	case expired:
		p.markExpired()
	default:
		i.mu.Lock()
		defer i.mu.Unlock()
		if p.state == aggregate.Unknown || p.state == aggregate.Syncing {
			i.setStateLocked(p, aggregate.Syncing, err.Error())
			_ = i.commitLocked() //nolint:errcheck // the scope is closed
		}
	}
}

// markExpired notes why the next list comes.
func (p *listWatch) markExpired() {
	p.informer.mu.Lock()
	defer p.informer.mu.Unlock()
	p.cause = "expired"
}

// Add puts an object into the scope.
func (p *listWatch) Add(obj any) error { return p.put(obj) }

// Update puts an object into the scope.
func (p *listWatch) Update(obj any) error { return p.put(obj) }

func (p *listWatch) put(obj any) error {
	o := obj.(*object)
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case o.unfit.why != "":
		i.scope.Delete(o.namespace, o.name) // what was held is not what there is
		p.retention.remove(objectKey{o.namespace, o.name})
		p.leftOut.add(o.key, o.unfit)
		i.publishLeftOutLocked()
	default:
		i.scope.Upsert(o.item)
		p.evictLocked(p.retention.add(o, time.Now()))
		p.restoreLocked(o)
	}
	return p.appliedLocked(o)
}

// Delete takes an object out of the scope.
func (p *listWatch) Delete(obj any) error {
	o := obj.(*object)
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	i.scope.Delete(o.namespace, o.name)
	p.retention.remove(objectKey{o.namespace, o.name})
	p.restoreLocked(o)
	return p.appliedLocked(o)
}

// restoreLocked takes an object that was left out back in, or lets it go. The informer's
// mu must be held.
func (p *listWatch) restoreLocked(o *object) {
	if len(p.leftOut.byKey) > 0 && p.leftOut.remove(leftKeyFor(o.namespace, o.name)) {
		p.informer.publishLeftOutLocked()
	}
}

// maxBatch bounds the changes of one commit.
const maxBatch = 256

// appliedLocked commits, unless more is on its way already: then the last of what is
// waiting commits for all, so that a burst costs one commit and a single event
// waits for nothing. The informer's mu must be held.
func (p *listWatch) appliedLocked(o *object) error {
	i := p.informer
	i.applied = o.rv
	p.advanceLocked(o.rv)
	i.pendingReads = append(i.pendingReads, o.read)
	if isDefinition(i.kind) {
		i.member.triggerDiscovery()
	}
	if p.stream != nil && len(p.stream.events) > 0 && len(i.pendingReads) < maxBatch {
		return nil
	}
	return p.checkCommit(i.commitLocked())
}

// checkCommit ends the listWatch when its commit has exceeded the budget or found the
// scope closed.
func (p *listWatch) checkCommit(err error) error {
	switch {
	case errors.Is(err, errOverBudget):
		objects, bytes := p.informer.member.quota.Used()
		p.stopOverBudget(fmt.Sprintf("the scope would exceed the budget: the member already holds %d objects, %d bytes", objects, bytes))
	case err != nil:
		p.stop()
	}
	return err
}

// stopOverBudget ends the listWatch for being over budget.
func (p *listWatch) stopOverBudget(why string) {
	p.overBudget = why
	p.stop()
}

// chargeListed sets what the items of a list under way, which the index does not hold
// yet, cost the member, and reports whether it has the budget. A list that
// replaces what the scope holds needs no second budget.
func (p *listWatch) chargeListed(listed size) bool {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	ahead := size{max(0, listed.objects-i.objects), max(0, listed.bytes-i.bytes)}
	if ahead == p.aheadOfScope {
		return true
	}
	if !i.member.quota.Charge(&i.usage, ahead.objects-p.aheadOfScope.objects, ahead.bytes-p.aheadOfScope.bytes) {
		return false
	}
	p.aheadOfScope = ahead
	return true
}

// flush commits what a stopped watch has left behind.
func (p *listWatch) flush() {
	p.informer.mu.Lock()
	defer p.informer.mu.Unlock()
	_ = p.checkCommit(p.informer.commitLocked()) //nolint:errcheck // checkCommit has acted on it
}

// Bookmark records how far the member has been read, and whether the stream is
// connected.
func (p *listWatch) Bookmark(rv string) error {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	i.applied = rv
	p.advanceLocked(rv)
	if p.stream == nil {
		return p.checkCommit(i.commitLocked())
	}
	switch down, why := p.stream.status(); {
	case down && p.state == aggregate.Synced:
		i.setStateLocked(p, aggregate.Stale, why)
	case !down && p.state == aggregate.Stale:
		i.setStateLocked(p, aggregate.Synced, "")
	}
	return p.checkCommit(i.commitLocked())
}

// Replace makes the scope hold exactly what was listed.
func (p *listWatch) Replace(objs []any, rv string) error {
	err := p.replace(objs, rv)
	if mb := p.informer.member; p.informer.kind == definitionKind {
		mb.learnDefinitions() // here, before an event changes them
		mb.triggerSpec()      // some may differ from those of before
	}
	return err
}

func (p *listWatch) replace(objs []any, rv string) error {
	i := p.informer
	p.chargeListed(size{}) // the commit charges all of it
	p.checkList(rv)
	fit := make([]*object, 0, len(objs))
	var left leftOut
	for _, obj := range objs {
		if o := obj.(*object); o.unfit.why != "" {
			left.add(o.key, o.unfit)
		} else {
			fit = append(fit, o)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	fit = p.retention.replace(fit, time.Now())
	items := make([]aggregate.Item, len(fit))
	for n, o := range fit {
		items[n] = o.item
	}
	p.state, p.reason, p.leftOut = aggregate.Synced, "", left
	i.countLeftOutLocked()
	i.relists[p.cause]++
	i.metrics.relist(p.cause)
	p.cause = "other"
	i.applied = rv
	var err error
	if p.namespace == "" {
		_, err = i.scope.Replace(items, i.statusLocked())
	} else {
		_, err = i.scope.ReplaceNamespace(p.namespace, items, i.statusLocked())
	}
	if err == nil {
		err = i.commitLocked() // charges for the size
	}
	return p.checkCommit(err)
}

// Resync does nothing: the index is the only copy.
func (p *listWatch) Resync() error { return nil }

// emptyOverBudget empties a scope that is over budget, so that the others of the member
// can go on.
func (i *informer) emptyOverBudget(p *listWatch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	again := p.state == aggregate.OverBudget
	p.state, p.reason, p.leftOut = aggregate.OverBudget, message.Clip(p.overBudget), leftOut{}
	i.countLeftOutLocked()
	p.cause = "budget"
	p.retention.reset()
	_, err := i.scope.ReplaceNamespace(p.namespace, nil, i.statusLocked())
	if err == nil {
		err = i.commitLocked()
	}
	if again && err == nil {
		return // it was logged when it happened
	}
	i.log.Warn("over budget, removing the scope's objects", "reason", "OverBudget", "detail", p.overBudget, "error", err)
}
