package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"federator.dev/federator/internal/federation"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/listwatch"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
	"federator.dev/federator/pkg/clusterinformers/internal/runqueue"
	"federator.dev/federator/pkg/tracing"
)

// errOverBudget ends a listWatch that would exceed its member's budget.
var errOverBudget = errors.New("over budget")

// listWatch is one list and watch of a scope: all of a kind, or one namespace of it. It is a
// task that whatever it waits for wakes: an answer, what has come of a watch, a timer, the
// member's connection. Each time it does what can be done without waiting.
type listWatch struct {
	informer  *informer
	namespace string
	federated bool // the member is read at another federator
	task      runqueue.Task
	inbox     atomic.Pointer[answer]             // of the request under way
	stop      atomic.Pointer[context.CancelFunc] // ends the request under way; nil where there is none
	timer     atomic.Pointer[time.Timer]
	open      atomic.Pointer[watchResponse] // watch, for sweeps
	came      atomic.Bool                   // something of the watch is to be read
	pace      pace
	captures  atomic.Pointer[captureRequest] // of an audit
	repairs   atomic.Pointer[repair]         // of an audit

	// Of the informer's mu:
	state        aggregate.State
	reason       string
	cause        string // of the next relist
	aheadOfScope size   // charged for items of a list under way, beyond what the scope holds
	loaded       bool   // what is held was read by an earlier process, and nothing since
	leftOut      leftOut
	retention    *retention       // nil where all is kept
	reached      string           // the newest resourceVersion since the listWatch started
	applied      string           // what was put into the scope is of this resourceVersion; "" where a list is due
	proved       time.Time        // when it was last known to hold what the member has; zero: never
	resumed      bool             // it continues what an earlier process has held, and has not been proved
	since        time.Time        // of the state
	changes      int              // since proved
	newest       witness          // of the events of this watch and earlier ones
	before       [2]witness       // of those of earlier watches: up to the last one, and up to the doubt
	doubt        int64            // that of the latter
	upstream     aggregate.Status // of the scope at the federator that the member is read at, as it has said last

	// The task's:
	machine       listwatch.Machine
	request       listwatch.Request // under way or, of a watch that is open, answered
	asking        bool              // the request is not answered yet
	asked         time.Time
	watch         *watchResponse // open
	floor         string         // nothing older may come any more
	suspect       bool           // what came last made no sense: the scope is Stale until something does
	ended         bool
	panics        time.Duration   // delay after the last panic
	staged        []*object       // of a list under way
	restaged      bool            // it has objects more than once, or deletions
	listed        size            // staged
	slot          *quota.Slot     // of a first list under way that is large
	slotBy        time.Time       // when it goes on without one
	pending       []time.Time     // when events were read that are not committed yet
	turn, decoded tracing.Instant // when reading began, and when the last event was decoded
	received      int64           // bytes of a first list under way

	audit auditState // the auditor's
}

// newListWatch returns one that lists, or continues from what is held of a resourceVersion.
func newListWatch(i *informer, namespace, held string) *listWatch {
	p := &listWatch{
		informer: i, namespace: namespace, cause: "initial", state: aggregate.Unknown, retention: newRetention(*i.rule, i.member.quota.Limits),
		federated: i.member.federated.Load(),
		machine:   listwatch.New(held, listwatch.Options{Jitter: rand.N[time.Duration]}),
	}
	if st := i.scope.Status(); st.State == aggregate.Synced || st.State == aggregate.Partial || st.State == aggregate.Stale {
		// Objects of an earlier informer are there: as of the last contact.
		p.state, p.reason, p.loaded = aggregate.Stale, "relisting", st.Unread
	}
	if held != "" {
		p.state, p.reason, p.loaded = aggregate.Stale, "resuming after a restart", true
		p.applied, p.reached = held, held
		p.proved = i.member.loaded.Load().provedAt(i.kind)
		p.resumed = p.proved.IsZero()
	}
	p.since = time.Now()
	i.member.tasks.Init(&p.task, p)
	return p
}

const (
	overBudgetDelay  = 2 * time.Minute
	overBudgetJitter = time.Minute
)

// Run implements runqueue.Runner. It is the panic boundary of a listWatch: whatever fails inside
// is counted, shown, and restarted after a while; nothing else is affected.
func (p *listWatch) Run() (again bool) {
	if p.ended {
		return false
	}
	if p.informer.ended.Load() || p.informer.ctx.Err() != nil {
		if err := recoverPanic(func() error { p.end(); return nil }); err != nil {
			p.informer.metrics.panics.Inc()
			p.informer.log().Error("scope failed as it ended", "error", err)
		}
		return false
	}
	err := recoverPanic(func() error {
		now := time.Now()
		again = p.step(now)
		p.answerCapture(now, false)
		if mb := p.informer.member; !mb.synced.Load() && p.informer.synced.Load() {
			mb.progressed()
		}
		return nil
	})
	if err == nil {
		return again
	}
	return recoverPanic(func() error { p.panicked(err); return nil }) != nil
}

// step does what there is to do. It reports whether more is there already.
func (p *listWatch) step(now time.Time) (again bool) {
	if a := p.inbox.Swap(nil); a != nil {
		p.asking = false
		p.answered(now, a)
	}
	if r := p.repairs.Load(); r != nil && !r.begun {
		r.begun = true
		p.relist(now, "audit")
	}
	p.evictExpired(now)
	switch {
	case p.watch != nil && now.After(p.watch.deadline):
		p.failed(now, p.watch, errOverdue)
	case p.watch != nil && p.watch.client.Ended():
		p.failed(now, p.watch, ErrUnreachable)
	case p.watch != nil:
		if again = p.read(now); p.watch != nil {
			return again
		}
	}
	switch {
	case !p.asking:
		p.next(now)
	case p.request.Verb == listwatch.Watch && now.Sub(p.asked) >= unwatchedAfter:
		p.markUnwatched(errUnwatched)
	}
	return false
}

// While it is not watched, what is held is Stale: where the next request is longDelay away, and
// where a watch was not answered unwatchedAfter it was due. That is noticed by the next sweep.
const (
	longDelay      = time.Second
	unwatchedAfter = 10 * time.Second
)

var (
	errBackingOff = errors.New("watches end at once: the next request is delayed")
	errUnwatched  = errors.New("the member has not answered a watch yet")
)

var errOverdue = fmt.Errorf("the watch did not end in time: %w", ErrUnreachable)

// next sends the next request, or sees to it that it is sent when its time comes.
func (p *listWatch) next(now time.Time) {
	i := p.informer
	if i.member.conn.current() == nil {
		p.markDown(ErrUnreachable)
		return // it is woken when the member is connected
	}
	if !i.chargeOverhead() {
		p.overBudget(now, fmt.Sprintf("an informer for one more kind needs %d bytes: %v", i.overhead, errOverBudget))
	}
	r, at, ok := p.machine.Next(now)
	if !ok {
		if at.Sub(now) >= longDelay {
			p.markUnwatched(errBackingOff)
		}
		p.wakeIn(at.Sub(now))
		return
	}
	if r.Verb != listwatch.Watch {
		p.markSyncing()
	}
	p.request, p.asking, p.asked = r, true, now
	i.member.openers.add(p.send)
}

// wakeIn has the task run after a while. The last call counts.
func (p *listWatch) wakeIn(d time.Duration) {
	if t := p.timer.Load(); t != nil {
		t.Reset(d)
		return
	}
	t := time.AfterFunc(d, p.task.Wake)
	if !p.timer.CompareAndSwap(nil, t) {
		t.Stop()
		p.timer.Load().Reset(d)
	}
}

// ready is called when something has come of a watch.
func (p *listWatch) ready() {
	p.came.Store(true)
	if p.pace.fast.Load() {
		p.wakeIn(coalesceDelay)
	} else {
		p.task.Wake()
	}
}

// answered takes the answer to a request.
func (p *listWatch) answered(now time.Time, a *answer) {
	switch {
	case !p.machine.Awaits(p.request.ID): // it was restarted meanwhile
		p.watch = a.watch
		p.closeWatch()
		p.discard()
	case a.err != nil:
		p.failedRequest(now, a)
	case a.page != nil:
		p.took(now, a.page)
	default:
		p.machine.Opened(p.request.ID, now)
		p.keepWitness()
		p.watch, p.floor = a.watch, p.request.ResourceVersion
		p.open.Store(a.watch)
		p.informer.member.conn.clearError(string(p.informer.kind))
		p.tell(a.watch.scope)
		if !p.suspect && p.request.Verb == listwatch.Watch {
			p.markUp()
		}
		p.watch.body.Notify(p.ready)
	}
}

// took takes a page of a list.
func (p *listWatch) took(now time.Time, g *page) {
	p.informer.member.conn.clearError(string(p.informer.kind))
	p.tell(g.scope)
	if err := p.stagePage(g); err != nil {
		p.failed(now, nil, err)
		return
	}
	if p.machine.Page(p.request.ID, g.resourceVersion, g.more) == listwatch.Replace {
		p.replaceStaged(now, g.resourceVersion)
	}
}

// closeWatch ends the watch that is open.
func (p *listWatch) closeWatch() {
	if w := p.watch; w != nil {
		p.watch = nil
		p.open.Store(nil)
		w.body.Notify(nil)
		w.events.Close()
		if w.over == nil {
			w.close() // what is charged for it is given back here
		} else {
			p.informer.member.openers.close(w)
		}
	}
}

// discard drops what was listed.
func (p *listWatch) discard() {
	p.staged, p.restaged, p.listed, p.received = nil, false, size{}, 0
	p.slot.Release()
	p.slot, p.slotBy = nil, time.Time{}
	p.chargeListed(size{})
}

// end ends the listWatch once the answer to its request is back, and with the last one the
// informer.
func (p *listWatch) end() {
	if a := p.inbox.Swap(nil); a != nil {
		p.asking = false
		if a.watch != nil {
			p.watch = a.watch
		}
	}
	if p.asking {
		return // it is woken by the answer
	}
	p.ended = true
	defer p.informer.finish()
	if t := p.timer.Load(); t != nil {
		t.Stop()
	}
	p.retention.stop()
	p.closeWatch()
	p.discard()
}

const (
	minPanicDelay = time.Second
	maxPanicDelay = time.Minute
)

// panicked restarts a listWatch that has panicked.
func (p *listWatch) panicked(err error) {
	i := p.informer
	i.metrics.panics.Inc()
	i.log().Error("scope failed, restarting it", "error", err)
	i.member.conn.recordKindError(i.kind, err)
	p.panics = min(max(minPanicDelay, 2*p.panics), maxPanicDelay)
	p.restart(time.Now(), p.panics)
	i.setState(p, aggregate.Unknown, string(connection.Panicked))
}

// restart lists again after a while. The answer to a request under way is dropped.
func (p *listWatch) restart(now time.Time, after time.Duration) {
	p.closeWatch()
	if !p.asking { // else the request has what was listed
		p.discard()
	}
	p.suspect = false
	p.informer.mu.Lock()
	p.reached = "" // the first list may be answered from any cache
	p.applied = ""
	p.informer.mu.Unlock()
	p.machine.Restart(now, after)
	p.wakeIn(after)
}

// relist lists at once, unless that is under way.
func (p *listWatch) relist(now time.Time, cause string) {
	if p.machine.Listing() {
		return
	}
	p.restart(now, 0)
	p.informer.mu.Lock()
	p.cause = cause
	p.informer.mu.Unlock()
}

// tell takes the state in which the federator has the scope that the member is read at.
func (p *listWatch) tell(text string) {
	i := p.informer
	if !p.federated {
		return
	}
	status, err := federation.ParseStatus(text)
	if err != nil {
		status = aggregate.Status{Reason: "it does not say in which state the scope is"}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.upstream == status {
		return
	}
	told := p.upstream != aggregate.Status{}
	p.upstream = status
	i.publishLocked()
	if told {
		i.member.triggerDiscovery() // what it does not serve may be another, too
	}
}
