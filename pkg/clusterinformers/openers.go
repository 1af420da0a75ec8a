package clusterinformers

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxOpening is how many requests of a member's scopes are sent at a time. A watch that was
// answered is not among them, nor are up to maxSlow requests that wait for their answers for
// longer than slowAfter: that may be for a minute and more, and is no reason for others to wait.
const (
	maxOpening = 8
	maxSlow    = 64
	slowAfter  = 2 * time.Second
)

// Requests of scopes a second and member. After the member was out of reach all of its scopes
// are in the burst.
const (
	openRate  = 50
	openBurst = 25
)

// openers sends the requests of a member's scopes, a few at a time: what follows an
// answer is done without a goroutine.
type openers struct {
	limiter *rate.Limiter
	running sync.WaitGroup // of requests, and of what closes bodies

	mu      sync.Mutex
	opening int
	slow    int
	waiting []func(*turn)
}

// turn is a request's, of those that are sent at a time.
type turn struct {
	openers *openers
	timer   *time.Timer
	slow    bool // this and what follows: of the openers' mu
	over    bool
}

func newOpeners() *openers { return &openers{limiter: rate.NewLimiter(openRate, openBurst)} }

// setScopes says how many scopes there are.
func (o *openers) setScopes(n int) { o.limiter.SetBurst(max(openBurst, n)) }

// add has a request sent in its turn, by a function that begins it.
func (o *openers) add(send func(*turn)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, send)
	o.startLocked()
}

// startLocked sends what waits, as far as there is room.
func (o *openers) startLocked() {
	if o.opening == maxOpening || len(o.waiting) == 0 {
		return
	}
	o.opening++
	t, send := &turn{openers: o}, o.takeLocked()
	o.running.Go(func() {
		for send != nil {
			send(t)
			t, send = t.end()
		}
	})
}

// takeLocked returns what is to be sent next, nil for nothing.
func (o *openers) takeLocked() func(*turn) {
	if len(o.waiting) == 0 {
		o.waiting = nil
		return nil
	}
	send := o.waiting[0]
	o.waiting[0] = nil
	o.waiting = o.waiting[1:]
	return send
}

// begin waits until the request may be sent.
func (t *turn) begin(ctx context.Context) error {
	err := t.openers.limiter.Wait(ctx)
	t.timer = time.AfterFunc(slowAfter, t.giveWay)
	return err
}

// giveWay has another request sent while this one waits for its answer.
func (t *turn) giveWay() {
	o := t.openers
	o.mu.Lock()
	defer o.mu.Unlock()
	if t.over || o.slow == maxSlow {
		return
	}
	t.slow = true
	o.slow++
	o.opening--
	o.startLocked()
}

// end ends the turn. It returns the next, if there is one and this was not given away.
func (t *turn) end() (next *turn, send func(*turn)) {
	if t.timer != nil {
		t.timer.Stop()
	}
	o := t.openers
	o.mu.Lock()
	defer o.mu.Unlock()
	t.over = true
	if t.slow {
		o.slow--
		return nil, nil
	}
	if send = o.takeLocked(); send == nil {
		o.opening--
	}
	return &turn{openers: o}, send
}

// close closes a body, which may take as long as the connection that it came over.
func (o *openers) close(w *watchResponse) { o.running.Go(w.close) }

// send sends the request of the listWatch, and hands it the answer. A context is held for as
// long as the request is under way: there are as many listWatches as scopes.
func (p *listWatch) send(t *turn) {
	a := &answer{}
	ctx, cancel := context.WithCancel(p.informer.ctx)
	p.stop.Store(&cancel)
	if p.informer.ended.Load() {
		cancel()
	}
	a.err = recoverPanic(func() error {
		if err := t.begin(ctx); err != nil {
			return err
		}
		if a.client = p.informer.member.conn.current(); a.client == nil {
			return ErrUnreachable
		}
		return p.ask(ctx, a)
	})
	p.stop.Store(nil)
	if w := a.watch; w != nil && w.over != nil {
		over := w.over
		w.over = func() { over(); cancel() }
	} else {
		cancel()
	}
	p.inbox.Store(a)
	p.task.Wake()
}

// cancel ends the request under way.
func (p *listWatch) cancel() {
	if stop := p.stop.Load(); stop != nil {
		(*stop)()
	}
}
