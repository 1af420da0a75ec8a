package clusterinformers

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

// maxOpening is how many requests of a member's scopes wait for their answers at a time. A
// watch that was answered is not among them.
const maxOpening = 8

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
	waiting []func(*rate.Limiter)
}

func newOpeners() *openers { return &openers{limiter: rate.NewLimiter(openRate, openBurst)} }

// setScopes says how many scopes there are.
func (o *openers) setScopes(n int) { o.limiter.SetBurst(max(openBurst, n)) }

// add has a request sent in its turn, by a function that takes its token of the limiter.
func (o *openers) add(send func(*rate.Limiter)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opening == maxOpening {
		o.waiting = append(o.waiting, send)
		return
	}
	o.opening++
	o.running.Go(func() {
		for ; send != nil; send = o.next() {
			send(o.limiter)
		}
	})
}

// next returns whose turn it is, nil for none.
func (o *openers) next() func(*rate.Limiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		o.opening--
		o.waiting = nil
		return nil
	}
	send := o.waiting[0]
	o.waiting[0] = nil
	o.waiting = o.waiting[1:]
	return send
}

// close closes a body, which may take as long as the connection that it came over.
func (o *openers) close(w *watchResponse) { o.running.Go(w.close) }

// send sends the request of the listWatch, and hands it the answer. A context is held for as
// long as the request is under way: there are as many listWatches as scopes.
func (p *listWatch) send(limiter *rate.Limiter) {
	a := &answer{}
	ctx, cancel := context.WithCancel(p.informer.ctx)
	p.stop.Store(&cancel)
	if p.informer.ended.Load() {
		cancel()
	}
	a.err = recoverPanic(func() error {
		if err := limiter.Wait(ctx); err != nil {
			return err
		}
		if a.client = p.informer.member.conn.current(); a.client == nil {
			return ErrUnreachable
		}
		return p.ask(ctx, a)
	})
	p.stop.Store(nil)
	if w := a.watch; w != nil && w.over != nil {
		w.over = both(w.over, cancel)
	} else {
		cancel()
	}
	p.inbox.Store(a)
	p.task.Wake()
}

func both(f, g func()) func() { return func() { f(); g() } }

// cancel ends the request under way.
func (p *listWatch) cancel() {
	if stop := p.stop.Load(); stop != nil {
		(*stop)()
	}
}
