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

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/backoff"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// errOverBudget ends a part that would exceed its member's budget.
var errOverBudget = errors.New("over budget")

// part is one list and watch of a scope: all of a kind, or one namespace of it.
// A client-go Reflector drives it; its store is the index.
type part struct {
	informer  *informer
	namespace string

	// Of the informer's mu:
	state  aggregate.State
	reason string
	cause  string // of the next relist
	ahead  size   // charged for items of a list under way, beyond what the scope holds
	left   leftOut
	recent *recent // nil where all is kept

	reached string // the newest resourceVersion since the part started

	stream *stream            // the Reflector's goroutine only
	stop   context.CancelFunc // ends the Reflector
	over   string             // why the budget is exceeded; the Reflector's goroutine only
	failed *panicError        // of the stream's goroutine, which has ended
	pages  size               // listed so far; the list's goroutine only

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
	_ cache.ReflectorStore         = (*part)(nil)
	_ cache.ReflectorBookmarkStore = (*part)(nil)
)

func newPart(i *informer, namespace string) *part {
	p := &part{informer: i, namespace: namespace, cause: "initial", state: aggregate.Unknown, recent: newRecent(i.rule, i.member.account.Limits)}
	if st := i.scope.Status(); st.State == aggregate.Synced || st.State == aggregate.Partial || st.State == aggregate.Stale {
		// Objects of an earlier informer are there: as of the last contact.
		p.state, p.reason = aggregate.Stale, "listing again"
	}
	return p
}

// Delays between lists that fail for other reasons than the connection, which
// has its own.
const (
	listFirst = 200 * time.Millisecond
	listMax   = 15 * time.Second
	listGood  = 30 * time.Second // of following make the next delay the first again
)

const (
	overBudgetFirst = 2 * time.Minute
	overBudgetStir  = time.Minute
)

// run follows the member until ctx is done, or until something panics.
func (p *part) run(ctx context.Context) error {
	i := p.informer
	outer := ctx
	ctx, p.stop = context.WithCancel(outer)
	p.failed, p.over = nil, ""
	p.listed("") // what was reached before counts no more: the first list may be answered from any cache
	defer p.settle(size{})
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	defer p.join()
	if p.recent != nil && p.recent.ttl > 0 {
		sweeping.Go(func() { p.sweep(ctx) })
	}
	p.lists.open()
	p.follow(klog.NewContext(ctx, logr.Discard()))
	p.join()
	p.flush()
	if p.failed != nil {
		return p.failed
	}
	if p.over == "" {
		return nil
	}
	i.giveUp(p)
	_ = backoff.Sleep(outer, overBudgetFirst+rand.N(overBudgetStir)) //nolint:errcheck // the caller looks at ctx
	return nil
}

// join ends what the Reflector has started, and waits for it.
func (p *part) join() {
	p.stop()
	if s := p.stream; s != nil {
		s.Stop()
	}
	p.lists.wait()
}

func (p *part) reflector() *cache.Reflector {
	logger := logr.Discard()
	lw := &cache.ListWatch{ListWithContextFunc: p.ListWithContext, WatchFuncWithContext: p.WatchWithContext}
	r := cache.NewReflectorWithOptions(lw, nil, p, cache.ReflectorOptions{
		Logger: &logger, Name: p.informer.member.name + "/" + string(p.informer.kind), TypeDescription: string(p.informer.kind),
	})
	r.MaxInternalErrorRetryDuration = time.Minute
	return r
}

// follow lists and watches until ctx is done. It is the Reflector's own loop,
// but that errors come to us: they make the scope's state.
func (p *part) follow(ctx context.Context) {
	r, delay := p.reflector(), listFirst
	for {
		started := time.Now()
		if err := r.ListAndWatchWithContext(ctx); err != nil {
			p.watchError(ctx, err)
			if classify(err) == unable {
				r = p.reflector() // the resourceVersion may be what is refused, and this one lists with no other
			}
		}
		if time.Since(started) > listGood {
			delay = listFirst
		}
		if backoff.Sleep(ctx, delay+rand.N(delay)/2) != nil {
			return
		}
		delay = min(2*delay, listMax)
	}
}

// watchError takes the end of a list or watch into the scope's state.
func (p *part) watchError(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	i := p.informer
	i.member.conn.noteOf(i.kind, err)
	switch classify(err) {
	case forbidden:
		i.setPart(p, aggregate.Forbidden, err.Error())
	case absent:
		i.setPart(p, aggregate.Unknown, err.Error())
		i.member.nudge()
	case expired:
		p.expire()
	default:
		i.mu.Lock()
		defer i.mu.Unlock()
		if p.state == aggregate.Unknown || p.state == aggregate.Syncing {
			i.setPartLocked(p, aggregate.Syncing, err.Error())
			_ = i.commit() //nolint:errcheck // the scope has left: there is nobody to tell
		}
	}
}

// expire notes why the next list comes.
func (p *part) expire() {
	p.informer.mu.Lock()
	defer p.informer.mu.Unlock()
	p.cause = "expired"
}

// Add puts an object into the scope.
func (p *part) Add(obj any) error { return p.put(obj) }

// Update puts an object into the scope.
func (p *part) Update(obj any) error { return p.put(obj) }

func (p *part) put(obj any) error {
	o := obj.(*object)
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case o.unfit.why != "":
		i.scope.Delete(o.namespace, o.name) // what was held is not what there is
		p.recent.forget(recentKey{o.namespace, o.name})
		p.left.add(o.key, o.unfit)
		i.showLeftOut()
	default:
		i.scope.Upsert(o.item)
		p.leave(p.recent.keep(o, time.Now()))
		p.back(o)
	}
	return p.applied(o)
}

// Delete takes an object out of the scope.
func (p *part) Delete(obj any) error {
	o := obj.(*object)
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	i.scope.Delete(o.namespace, o.name)
	p.recent.forget(recentKey{o.namespace, o.name})
	p.back(o)
	return p.applied(o)
}

// back takes an object that was left out back in, or lets it go. The informer's
// mu must be held.
func (p *part) back(o *object) {
	if len(p.left.whys) > 0 && p.left.remove(leftKeyOf(o.namespace, o.name)) {
		p.informer.showLeftOut()
	}
}

// maxBatch bounds the changes of one commit.
const maxBatch = 256

// applied commits, unless more is on its way already: then the last of what is
// waiting commits for all, so that a burst costs one commit and a single event
// waits for nothing. The informer's mu must be held.
func (p *part) applied(o *object) error {
	i := p.informer
	i.applied = o.rv
	p.reach(o.rv)
	i.waiting = append(i.waiting, o.read)
	if isDefinition(i.kind) {
		i.member.nudge()
	}
	if p.stream != nil && len(p.stream.events) > 0 && len(i.waiting) < maxBatch {
		return nil
	}
	return p.committed(i.commit())
}

// committed ends the part when its commit has exceeded the budget or found the
// scope closed.
func (p *part) committed(err error) error {
	switch {
	case errors.Is(err, errOverBudget):
		objects, bytes := p.informer.member.account.Used()
		p.exceed(fmt.Sprintf("more would be held than the budget has: the member's other scopes and this one before hold %d objects, %d bytes", objects, bytes))
	case err != nil:
		p.stop()
	}
	return err
}

// exceed ends the part for being over budget.
func (p *part) exceed(why string) {
	p.over = why
	p.stop()
}

// settle sets what the items of a list under way, which the index does not hold
// yet, cost the member, and reports whether it has the budget. A list that
// takes the place of what the scope holds needs no second one.
func (p *part) settle(listed size) bool {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	ahead := size{max(0, listed.objects-i.objects), max(0, listed.bytes-i.bytes)}
	if ahead == p.ahead {
		return true
	}
	if !i.member.account.Charge(&i.stake, ahead.objects-p.ahead.objects, ahead.bytes-p.ahead.bytes) {
		return false
	}
	p.ahead = ahead
	return true
}

// flush commits what a stopped watch has left behind.
func (p *part) flush() {
	p.informer.mu.Lock()
	defer p.informer.mu.Unlock()
	_ = p.committed(p.informer.commit()) //nolint:errcheck // committed has acted on it
}

// Bookmark takes note of how far the member has been followed, and of whether
// the stream stands.
func (p *part) Bookmark(rv string) error {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	i.applied = rv
	p.reach(rv)
	if p.stream == nil {
		return p.committed(i.commit())
	}
	switch down, why := p.stream.standing(); {
	case down && p.state == aggregate.Synced:
		i.setPartLocked(p, aggregate.Stale, why)
	case !down && p.state == aggregate.Stale:
		i.setPartLocked(p, aggregate.Synced, "")
	}
	return p.committed(i.commit())
}

// Replace makes the part hold exactly what was listed.
func (p *part) Replace(objs []any, rv string) error {
	i := p.informer
	p.settle(size{}) // the commit charges all of it
	p.listed(rv)
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
	fit = p.recent.replace(fit, time.Now())
	items := make([]aggregate.Item, len(fit))
	for n, o := range fit {
		items[n] = o.item
	}
	p.state, p.reason, p.left = aggregate.Synced, "", left
	i.countLeftOut()
	i.relists[p.cause]++
	i.metrics.relist(p.cause)
	p.cause = "other"
	i.applied = rv
	var err error
	if p.namespace == "" {
		_, err = i.scope.Replace(items, i.status())
	} else {
		_, err = i.scope.ReplaceNamespace(p.namespace, items, i.status())
	}
	if err == nil {
		err = i.commit() // takes the size into the account
	}
	if i.kind == definitionKind {
		i.member.again() // so that it knows the definitions before they change
	}
	return p.committed(err)
}

// Resync does nothing: the index is the only copy.
func (p *part) Resync() error { return nil }

// giveUp empties a scope that is over budget, so that the others of the member
// can go on.
func (i *informer) giveUp(p *part) {
	i.mu.Lock()
	defer i.mu.Unlock()
	again := p.state == aggregate.OverBudget
	p.state, p.reason, p.left = aggregate.OverBudget, message.Clip(p.over), leftOut{}
	i.countLeftOut()
	p.cause = "budget"
	p.recent.reset()
	_, err := i.scope.ReplaceNamespace(p.namespace, nil, i.status())
	if err == nil {
		err = i.commit()
	}
	if again && err == nil {
		return // it was told when it was
	}
	i.log.Warn("scope is given up", "reason", "OverBudget", "detail", p.over, "error", err)
}
