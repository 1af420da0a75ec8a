package clusterinformers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/backoff"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// Delays between attempts to reach a member that is out of reach, and the
// bucket that its scopes draw from when it is back.
const (
	probeFirst   = 50 * time.Millisecond
	probeMax     = 5 * time.Second
	probeTimeout = 5 * time.Second
	deniedMax    = time.Minute // while the credentials are not accepted

	reopenRate  = 50 // streams a second and member
	reopenBurst = 25
	reopenStir  = 50 * time.Millisecond // jitter, so that members do not act as one
)

// conn is what the scopes of one member share: whether it can be reached, and
// how. A scope whose stream breaks reports it; one goroutine, run, then probes,
// and lets all scopes go on at once.
type conn struct {
	reopen *rate.Limiter
	onUp   func(ctx context.Context, a *memberclient.Client) error // checks who answers, before anything else is asked

	lastHeard atomic.Int64 // unix nanoseconds of the last that came over a connection
	dials     atomic.Int64
	redialed  chan struct{} // one slot: there is a new connection

	mu      sync.Mutex
	access  *memberclient.Client // nil: refused
	up      bool
	contact connection.State
	reason  connection.Reason
	message string
	since   time.Time
	changed chan struct{} // closed and exchanged at every change of the above
	lastErr string
	lastAt  time.Time
	// troubles are the errors that are not over, by what they are of: a kind, or "" for
	// the member itself.
	troubles map[string]trace
}

// trace is an error for people to see.
type trace struct {
	text string
	at   time.Time
}

func newConn(onUp func(context.Context, *memberclient.Client) error) *conn {
	return &conn{
		reopen: rate.NewLimiter(reopenRate, reopenBurst), onUp: onUp, redialed: make(chan struct{}, 1), troubles: map[string]trace{},
		contact: connection.Disconnected, reason: connection.Connecting, since: time.Now(), changed: make(chan struct{}),
	}
}

// set changes the state and wakes whoever waits for a change. c.mu must be
// held.
func (c *conn) set(up bool, contact connection.State, reason connection.Reason, text string) {
	if c.contact != contact || c.reason != reason {
		c.since = time.Now()
	}
	c.up, c.contact, c.reason, c.message = up, contact, reason, message.Clip(text)
	close(c.changed)
	c.changed = make(chan struct{})
}

// swap exchanges the access. With a nil one the member is refused: what uses
// the old one is ended. Otherwise old streams go on, and new ones use the new
// access.
func (c *conn) swap(a *memberclient.Client, refused *connection.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.access
	c.access = a
	if old != nil {
		defer old.CloseIdleConnections()
	}
	if a == nil {
		if old != nil {
			old.Cancel()
		}
		c.set(false, connection.Refused, refused.Reason, refused.Message)
		return
	}
	if c.contact == connection.Refused {
		c.set(false, connection.Disconnected, connection.Connecting, "")
		return
	}
	// Whether the new one works is found out by run.
	c.set(false, c.contact, c.reason, c.message)
}

// wait returns the access once the member can be reached.
func (c *conn) wait(ctx context.Context) (*memberclient.Client, error) {
	for {
		c.mu.Lock()
		a, up, changed := c.access, c.up, c.changed
		c.mu.Unlock()
		if up {
			return a, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// current returns the access, nil while the member cannot be reached.
func (c *conn) current() *memberclient.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.up {
		return nil
	}
	return c.access
}

// admit waits for the member to be reachable and for the scope's turn.
func (c *conn) admit(ctx context.Context, again bool) (*memberclient.Client, error) {
	a, err := c.wait(ctx)
	if err != nil {
		return nil, err
	}
	if again {
		if err := backoff.Sleep(ctx, rand.N(reopenStir)); err != nil {
			return nil, err
		}
	}
	if err := c.reopen.Wait(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// failed reports that a request over an access broke down. Reports about an
// access that has been exchanged say nothing about the new one.
func (c *conn) failed(a *memberclient.Client, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.access == a { // else nobody would find out that it is over
		c.note("", err)
	}
	if c.access != a || !c.up {
		return
	}
	// Contact stays as it is until a probe fails too: one broken stream is not
	// a lost member.
	c.set(false, c.contact, c.reason, c.message)
}

// note remembers an error for people to see, as one of a kind or, with "", of the
// member itself. What we have ended ourselves is no error. c.mu must be held.
func (c *conn) note(of string, err error) {
	if ended(err) {
		return
	}
	c.lastErr, c.lastAt = message.Clip(err.Error()), time.Now()
	c.troubles[of] = trace{c.lastErr, c.lastAt}
}

// noteError is note for the member itself.
func (c *conn) noteError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("", err)
}

// noteOf is note for one kind.
func (c *conn) noteOf(kind aggregate.Kind, err error) {
	c.noteAs(string(kind), fmt.Errorf("%s: %w", kind, err))
}

func (c *conn) noteAs(of string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(of, err)
}

// over says that what was noted of a kind, say, is over.
func (c *conn) over(of string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.troubles, of)
}

const ( // beside kinds
	discoveryTrouble = "discovery"
	identityTrouble  = "identity"
)

// trouble returns the newest error that is not over.
func (c *conn) trouble() trace {
	c.mu.Lock()
	defer c.mu.Unlock()
	var newest trace
	for _, t := range c.troubles {
		if t.at.After(newest.at) {
			newest = t
		}
	}
	return newest
}

// dialed notes a new connection. What answers may be another than before, even where
// the old one ended in good order.
func (c *conn) dialed() {
	c.dials.Add(1)
	select {
	case c.redialed <- struct{}{}:
	default:
	}
}

// heard notes that the member lives.
func (c *conn) heard() { c.lastHeard.Store(time.Now().UnixNano()) }

// recheckEvery is how often it is asked at most who answers while the member is up.
const recheckEvery = 2 * time.Second

// run probes whenever the member is not known to be up, and whenever new connections
// to it were made, until ctx is done.
func (c *conn) run(ctx context.Context) {
	delay := probeFirst
	checked, last := int64(0), time.Time{} // dials known at the last probe
	for {
		c.mu.Lock()
		a, up, changed := c.access, c.up, c.changed
		c.mu.Unlock()
		if up || a == nil {
			delay = probeFirst
			if !c.redials(ctx, changed, up && c.dials.Load() != checked, last) {
				if ctx.Err() != nil {
					return
				}
				continue
			}
		}
		err := c.probe(ctx, a)
		if ctx.Err() != nil {
			return
		}
		checked, last = c.dials.Load(), time.Now()
		if up {
			if err != nil {
				c.failed(a, err)
			}
			continue
		}
		most := c.judge(a, err)
		if err == nil {
			continue
		}
		// Decorrelated jitter: members that failed together do not return
		// together.
		delay = min(most, probeFirst+rand.N(3*delay))
		c.mu.Lock()
		exchanged := c.access != a
		changed = c.changed
		c.mu.Unlock()
		if exchanged {
			delay = probeFirst
			continue
		}
		select {
		case <-changed: // exchanged, most likely
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
	}
}

// redials waits until something changes, or until it is to be asked again who
// answers, which it reports.
func (c *conn) redials(ctx context.Context, changed <-chan struct{}, due bool, last time.Time) bool {
	var at <-chan time.Time
	if due {
		t := time.NewTimer(time.Until(last.Add(recheckEvery)))
		defer t.Stop()
		at = t.C
	}
	select {
	case <-at:
		return true
	case <-c.redialed:
	case <-changed:
	case <-ctx.Done():
	}
	return false
}

func (c *conn) probe(ctx context.Context, a *memberclient.Client) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return c.onUp(ctx, a)
}

// judge takes the outcome of a probe into the state, and returns the longest
// delay before the next one.
func (c *conn) judge(a *memberclient.Client, err error) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.access != a {
		return probeMax
	}
	if err == nil {
		c.set(true, connection.Connected, "", "")
		delete(c.troubles, "") // it is over
		return probeMax
	}
	c.note("", err)
	contact, reason, most := connection.Disconnected, memberclient.ReasonFor(err), probeMax
	switch {
	case connection.AsRefusal(err) != nil:
		contact, most = connection.Refused, deniedMax
	case reason == connection.Unauthorized:
		most = deniedMax
	}
	if c.contact != contact || c.reason != reason || c.message != message.Clip(err.Error()) {
		c.set(false, contact, reason, err.Error())
	}
	return most
}

// state returns contact, reason, message and since when.
func (c *conn) state() (connection.State, connection.Reason, string, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.contact, c.reason, c.message, c.since
}

// why says why the member is not read, for the scopes that are not.
func (c *conn) why() error {
	_, reason, message, _ := c.state()
	if reason == "" || reason == connection.Connecting {
		return ErrUnreachable
	}
	return &connection.Refusal{Reason: reason, Message: message}
}

// change returns a channel that is closed at the next change of state.
func (c *conn) change() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// longer returns the pause after one that was in vain: up to three times as
// long, and never shorter, so that what keeps failing is asked less and less.
func longer(d time.Duration) time.Duration {
	return min(probeMax, d+rand.N(2*d))
}
