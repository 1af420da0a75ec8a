package clusterinformers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// Delays between attempts to reach a member that is out of reach.
const (
	minProbeDelay  = 50 * time.Millisecond
	maxProbeDelay  = 5 * time.Second
	fewProbeDelay  = 200 * time.Millisecond // the longest while few members are out of reach
	probeInterval  = 10 * time.Millisecond  // on average, of all members that are out of reach together
	probeTimeout   = 5 * time.Second
	maxDeniedDelay = time.Minute // while the credentials are not accepted
)

// conn is what the scopes of one member share: whether it can be reached, and
// how. A scope whose stream breaks reports it; one goroutine, run, then probes,
// and wakes all scopes at once.
type conn struct {
	identify  func(ctx context.Context, client *memberclient.Client) error // checks which cluster answers, before any other request
	verify    func(ctx context.Context, client *memberclient.Client) error // checks what need not be known before other requests; nil: there is nothing
	connected func()                                                       // called once the member can be reached again
	admit     func(context.Context) error                                  // waits for the turn to connect for the first time; nil: there is none
	refused   func()                                                       // called when the turn was for nothing, as the first probe has failed; as admit
	prolong   func(time.Duration) time.Duration                            // a timeout, where this process is late itself

	away *atomic.Int64 // how many members are out of reach, of all

	lastRead atomic.Int64 // unix nanoseconds of the last that came over a connection
	dials    atomic.Int64
	redialed trigger.Trigger // there is a new connection
	doubts   atomic.Int64    // how often it became doubtful what answers, and was verified; odd: it is doubtful
	admitted bool            // run's: it has had its turn to connect for the first time

	mu        sync.Mutex
	client    *memberclient.Client // nil: refused
	up        bool
	status    connection.State
	reason    connection.Reason
	message   string
	since     time.Time
	changed   chan struct{} // closed and replaced at every change of the above
	lastErr   string
	lastErrAt time.Time
	// errors are the errors that are not over, by what they are of: a kind, or "" for
	// the member itself.
	errors map[string]timedError
}

// timedError is an error for people to see.
type timedError struct {
	text string
	at   time.Time
}

func newConn(identify func(context.Context, *memberclient.Client) error, connected func(), prolong func(time.Duration) time.Duration) *conn {
	return &conn{
		identify: identify, connected: connected, prolong: prolong, away: new(atomic.Int64), redialed: trigger.New(), errors: map[string]timedError{},
		status: connection.Disconnected, reason: connection.Connecting, since: time.Now(), changed: make(chan struct{}),
	}
}

// setLocked changes the state and wakes all waiters. c.mu must be
// held.
func (c *conn) setLocked(up bool, contact connection.State, reason connection.Reason, text string) {
	if c.status != contact || c.reason != reason {
		c.since = time.Now()
	}
	c.up, c.status, c.reason, c.message = up, contact, reason, message.Clip(text)
	if !up {
		c.doubt()
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// setClient replaces the client. nil means that the member is refused: streams of the
// old one are closed. Otherwise old streams continue, and new ones use the new client.
func (c *conn) setClient(client *memberclient.Client, refused *connection.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.client
	c.client = client
	if old != nil {
		defer old.CloseIdleConnections()
	}
	if client == nil {
		if old != nil {
			old.Cancel()
		}
		c.setLocked(false, connection.Refused, refused.Reason, refused.Message)
		return
	}
	if c.status == connection.Refused {
		c.setLocked(false, connection.Disconnected, connection.Connecting, "")
		return
	}
	// Whether the new one works is found out by run.
	c.setLocked(false, c.status, c.reason, c.message)
}

// hangUp closes the connections without a word to the member, which may not listen.
func (c *conn) hangUp() {
	c.mu.Lock()
	client := c.client
	c.mu.Unlock()
	if client != nil {
		client.Close()
	}
}

// current returns the client, nil while the member cannot be reached.
func (c *conn) current() *memberclient.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.up {
		return nil
	}
	return c.client
}

// reportFailure reports that a request failed. Reports about a client that has been
// replaced say nothing about the new one.
func (c *conn) reportFailure(client *memberclient.Client, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == client { // else it would never be cleared
		c.recordLocked("", err)
	}
	if c.client != client || !c.up {
		return
	}
	// Contact stays as it is until a probe fails too: one broken stream is not
	// a lost member.
	c.setLocked(false, c.status, c.reason, c.message)
}

// recordLocked remembers an error for people to see, as one of a kind or, with "", of the
// member itself. What we have ended ourselves is no error. c.mu must be held.
func (c *conn) recordLocked(of string, err error) {
	if canceled(err) {
		return
	}
	c.lastErr, c.lastErrAt = message.Clip(err.Error()), time.Now()
	c.errors[of] = timedError{c.lastErr, c.lastErrAt}
}

// recordError is recordLocked for the member itself.
func (c *conn) recordError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordLocked("", err)
}

// recordKindError is recordLocked for one kind.
func (c *conn) recordKindError(kind aggregate.Kind, err error) {
	c.recordErrorOf(string(kind), fmt.Errorf("%s: %w", kind, err))
}

func (c *conn) recordErrorOf(of string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordLocked(of, err)
}

// clearError says that what was noted of a kind, say, is over.
func (c *conn) clearError(of string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.errors, of)
}

const ( // in addition to kinds
	discoveryErrors = "discovery"
	identityErrors  = "identity"
)

// newestError returns the newest error that is not over.
func (c *conn) newestError() timedError {
	c.mu.Lock()
	defer c.mu.Unlock()
	var newest timedError
	for _, t := range c.errors {
		if t.at.After(newest.at) {
			newest = t
		}
	}
	return newest
}

// onDial notes a new connection. What answers may be another than before, even where
// the old one ended in good order.
func (c *conn) onDial() {
	c.mu.Lock()
	c.dials.Add(1)
	c.doubt() // before anything is sent
	c.mu.Unlock()
	c.redialed.Fire()
}

// doubt notes that what answers is to be verified. c.mu must be held.
func (c *conn) doubt() {
	if n := c.doubts.Load(); n%2 == 0 {
		c.doubts.Store(n + 1)
	}
}

// settle notes that what answers was verified, as of so many dials: after another one the doubt goes on.
func (c *conn) settle(checked int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.doubts.Load(); n%2 != 0 && c.up && c.dials.Load() == checked {
		c.doubts.Store(n + 1)
	}
}

// onRead notes that the member lives.
func (c *conn) onRead() { c.lastRead.Store(time.Now().UnixNano()) }

// recheckInterval is the minimum time between checks of the cluster's identity while the
// member is up.
const recheckInterval = 2 * time.Second

// run probes whenever the member is not known to be up, and whenever new connections
// to it were made, until ctx is done.
func (c *conn) run(ctx context.Context) {
	delay := minProbeDelay
	checked, last := int64(0), time.Time{} // dials known at the last probe
	first, away := false, false
	defer func() { c.noteAway(&away, false) }()
	for {
		c.mu.Lock()
		client, up, changed := c.client, c.up, c.changed
		c.mu.Unlock()
		if first && client == nil {
			c.refused()
			first = false
		}
		if up || client == nil {
			c.noteAway(&away, false)
			delay = minProbeDelay
			if !c.awaitRecheck(ctx, changed, up && c.dials.Load() != checked, last) {
				if ctx.Err() != nil {
					return
				}
				continue
			}
		}
		if c.admit != nil && !c.admitted {
			if c.admit(ctx) != nil {
				return
			}
			c.admitted, first = true, true
			continue // there may be another client since, or none
		}
		err := c.probe(ctx, client)
		if first && err != nil {
			c.refused()
		}
		first = false
		if ctx.Err() != nil {
			return
		}
		checked, last = c.dials.Load(), time.Now()
		if up {
			if err != nil {
				c.reportFailure(client, err)
				continue
			}
			checked = c.verified(ctx, client, checked)
			continue
		}
		maxDelay := c.probed(client, err)
		c.noteAway(&away, err != nil && maxDelay <= maxProbeDelay)
		if err == nil {
			c.connected()
			checked = c.verified(ctx, client, checked)
			continue
		}
		// Decorrelated jitter: members that failed together do not return
		// together.
		delay = min(c.longestDelay(maxDelay), minProbeDelay+rand.N(3*delay))
		c.mu.Lock()
		replaced := c.client != client
		changed = c.changed
		c.mu.Unlock()
		if replaced {
			delay = minProbeDelay
			continue
		}
		select {
		case <-changed: // replaced, most likely
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
	}
}

// noteAway counts the member among those that are probed again and again, or does not any more.
func (c *conn) noteAway(was *bool, is bool) {
	switch {
	case is && !*was:
		c.away.Add(1)
	case !is && *was:
		c.away.Add(-1)
	}
	*was = is
}

// longestDelay bounds the delay before the next probe, so that a member recovers as soon as the way to
// it does. Where many are out of reach they share a rate of probes.
func (c *conn) longestDelay(most time.Duration) time.Duration {
	if most > maxProbeDelay {
		return most // its credentials are refused: nothing comes back by itself
	}
	return min(most, max(fewProbeDelay, time.Duration(c.away.Load())*probeInterval))
}

// awaitRecheck waits for a change or until the cluster's identity must be verified again;
// it reports the latter.
func (c *conn) awaitRecheck(ctx context.Context, changed <-chan struct{}, due bool, last time.Time) bool {
	var at <-chan time.Time
	if due {
		t := time.NewTimer(time.Until(last.Add(recheckInterval)))
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

func (c *conn) probe(ctx context.Context, client *memberclient.Client) error {
	ctx, cancel := context.WithTimeout(ctx, c.prolong(probeTimeout))
	defer cancel()
	return c.identify(ctx, client)
}

// verified checks what need not be known before other requests, which go on meanwhile. It returns the
// dials that are checked with that: none where the member did not answer, so that it is asked again.
func (c *conn) verified(ctx context.Context, client *memberclient.Client, checked int64) int64 {
	if c.verify == nil {
		return checked
	}
	ctx, cancel := context.WithTimeout(ctx, c.prolong(2*probeTimeout)) // it may be several requests
	changed := c.changes()
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-changed: // the member is to be probed
			cancel()
		case <-ctx.Done():
		}
	})
	defer watching.Wait()
	defer cancel()
	if err := c.verify(ctx, client); err != nil || ctx.Err() != nil {
		return -1
	}
	c.settle(checked)
	return checked
}

// probed takes the outcome of a probe into the state, and returns the longest
// delay before the next one.
func (c *conn) probed(client *memberclient.Client, err error) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != client {
		return maxProbeDelay
	}
	if err == nil {
		c.setLocked(true, connection.Connected, "", "")
		delete(c.errors, "") // it is over
		return maxProbeDelay
	}
	c.recordLocked("", err)
	contact, reason, maxDelay := connection.Disconnected, memberclient.ReasonFor(err), maxProbeDelay
	switch {
	case connection.AsRefusal(err) != nil:
		contact, maxDelay = connection.Refused, maxDeniedDelay
	case reason == connection.Unauthorized:
		maxDelay = maxDeniedDelay
	}
	if c.status != contact || c.reason != reason || c.message != message.Clip(err.Error()) {
		c.setLocked(false, contact, reason, err.Error())
	}
	return maxDelay
}

// state returns contact, reason, message and since when.
func (c *conn) state() (connection.State, connection.Reason, string, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status, c.reason, c.message, c.since
}

// unreachable says why the member is not read, for the scopes that are not.
func (c *conn) unreachable() error {
	_, reason, message, _ := c.state()
	if reason == "" || reason == connection.Connecting {
		return ErrUnreachable
	}
	return &connection.Refusal{Reason: reason, Message: message}
}

// changes returns a channel that is closed at the next change of state.
func (c *conn) changes() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}
