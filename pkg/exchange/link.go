package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/exchange/internal/wire"
	"federator.dev/federator/pkg/interest"
)

// MalformedError is what a peer has told that is no part of the protocol, with its place in the stream.
type MalformedError = wire.MalformedError

// Errors for which a stream ends, besides a [MalformedError] and those of the connection.
var (
	ErrSilent   = errors.New("it was silent")
	ErrProcess  = errors.New("another process answers there")
	ErrDisagree = errors.New("the digest disagrees with what it told")
	ErrBound    = errors.New("it tells more than is taken of it")
	ErrEnded    = errors.New("it has ended the stream")
)

// errAgain ends a stream so that the next one asks again for something.
var errAgain = errors.New("something is asked for again")

// link is what goes on with one peer. Its stream is read by one goroutine, another one audits.
type link struct {
	im      *Importer
	metrics *peerMetrics
	cancel  context.CancelFunc
	running sync.WaitGroup

	// Importer.mu guards all below.
	peer      Peer
	connected bool      // a frontier was reached, and the stream goes on
	lost      time.Time // when that ended; zero where it did not, and before
	reason    string
	epoch     uint64
	position  uint64            // the sequence of the last frontier; 0: the state is needed
	announced map[string]string // the UIDs of members of which it was told
	check     bool              // of these some may be missed: it was not known that the peer judges them
	again     map[ask]bool      // what is asked for again
	suspects  map[string]bool   // members that are audited next
	idle      func(error)       // ends a stream of which no batch is under way; nil while one is
	telling   uint64            // the sequence of the batch under way
	bytes     int64
	records   int64
	frontier  Frontier

	id     uint64          // the peer's ID of the stream; 0: there is none
	asking bool            // the stream has begun, and may be asked for more
	has    asked           // all of it was told, as of position
	asks   asked           // has, or what was asked for since: one at a time
	under  *interest.Set   // the keys of which a batch under way is, where it has all that is held; nil: none
	ask    trigger.Trigger // there is something to ask for
}

func (l *link) start(ctx context.Context) {
	ctx, l.cancel = context.WithCancel(ctx)
	l.running.Go(func() { l.follow(ctx) })
	l.running.Go(func() { l.audit(ctx) })
}

func (l *link) stop() {
	l.cancel()
	l.running.Wait()
}

// follow has one stream after the other.
func (l *link) follow(ctx context.Context) {
	const least = 50 * time.Millisecond
	delay := time.Duration(0)
	for ctx.Err() == nil {
		before := l.reached()
		err := l.stream(ctx)
		l.broken(err)
		switch {
		case errors.Is(err, errAgain) || l.reached() != before:
			delay = least
		default:
			delay = min(max(2*delay, least), l.im.o.Backoff)
		}
		if errors.Is(err, errAgain) {
			continue
		}
		if err := sleep.For(ctx, delay/2+rand.N(delay/2)); err != nil {
			return
		}
	}
}

func (l *link) reached() time.Time {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	return l.frontier.Time
}

// broken notes why a stream ended.
func (l *link) broken(err error) {
	l.metrics.ended(err)
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	l.id, l.asking, l.under = 0, false, nil
	defer l.im.growLocked()
	if l.idle = nil; errors.Is(err, errAgain) {
		return
	}
	l.connected, l.reason = false, clip.Line(err.Error(), maxReason)
	if l.lost.IsZero() && l.tellsLocked() { // before there is nothing of it
		l.lost = time.Now()
		l.im.wake.Fire()
	}
}

// tellsLocked reports whether members are as the peer has told.
func (l *link) tellsLocked() bool {
	for _, m := range l.im.members {
		if m.source == l.peer.ID {
			return true
		}
	}
	return false
}

// request is where the stream is to begin, and what is asked for.
func (l *link) request(ctx context.Context, body io.Reader) (request *http.Request, has, asks asked, err error) {
	l.im.mu.Lock()
	query := url.Values{}
	if len(l.again) > maxAgain {
		l.position = 0
	}
	if l.position > 0 {
		query.Set("since", fmt.Sprintf("%d.%d", l.epoch, l.position))
		for a := range l.again {
			query.Add("again", strings.TrimSuffix(a.member+" "+string(a.kind), " "))
		}
	}
	clear(l.again)
	l.check = true // what is not told again is missed
	target := l.peer.URL + StreamPath + "?" + query.Encode()
	has, asks = l.openLocked()
	l.im.mu.Unlock()
	request, err = http.NewRequestWithContext(ctx, http.MethodPost, target, body)
	return request, has, asks, err
}

// stream reads one stream, and returns why it ended.
func (l *link) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(l.im.o.Silence, func() { cancel(ErrSilent) })
	defer silence.Stop()
	err := l.read(ctx, cancel, silence)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (l *link) read(ctx context.Context, cancel context.CancelCauseFunc, silence *time.Timer) error {
	body, asks := io.Pipe()
	request, has, asked, err := l.request(ctx, body)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { l.sendAsks(asks, has, asked, ended) })
	defer asking.Wait()
	// While a request's body is read, its transport does not look at the context.
	stop := context.AfterFunc(ctx, func() { _ = asks.CloseWithError(context.Cause(ctx)) }) //nolint:errcheck // it is always nil
	defer stop()
	defer func() { close(ended); _ = body.CloseWithError(ErrEnded) }() //nolint:errcheck // it is always nil
	response, err := l.peer.Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", response.Status)
	}
	counted := &counter{from: response.Body, link: l}
	plain, err := zstd.NewReader(counted, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(4*window))
	if err != nil {
		return err
	}
	defer plain.Close()
	r := &receiver{link: l, frames: wire.NewReader(plain, max(l.im.o.MaxRecord, maxControl)), cancel: cancel}
	for {
		t, payload, err := r.frames.Next()
		if errors.Is(err, io.EOF) {
			return ErrEnded // as net/http reports a peer that ends in good order
		}
		if err != nil {
			return err
		}
		if t == wire.TypeEnd {
			silence.Stop() // a member that is large takes its time to be written
		}
		if err := r.frame(t, payload); err != nil {
			return err
		}
		silence.Reset(l.im.o.Silence)
	}
}

// counter counts what comes.
type counter struct {
	from io.Reader
	link *link
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.link.metrics.bytes.Add(float64(n))
	c.link.im.mu.Lock()
	c.link.bytes += int64(n)
	c.link.im.mu.Unlock()
	return n, err
}

// recheckLocked asks again for members that the peer has told of before it was known to be their judge. Importer.mu must
// be held. It reports whether there are any: the stream must end then, which it does for one without a batch under way.
func (l *link) recheckLocked() bool {
	if l.check {
		l.check = false
		l.missedLocked()
	}
	if len(l.again) > 0 && l.idle != nil {
		l.idle(errAgain)
		l.idle = nil
	}
	return len(l.again) > 0
}

func (l *link) missedLocked() {
	for name, uid := range l.announced {
		m := l.im.members[name]
		if m != nil && m.judge == l.peer.ID && m.source != l.peer.ID && m.uid == uid {
			l.again[ask{member: name}] = true
		}
	}
}

// begin notes that a batch is under way, and reports whether it is of what was asked for.
func (l *link) begin(b wire.Begin) bool {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	l.idle, l.telling = nil, b.Sequence
	return l.beginLocked(b.Interest)
}

// reach notes that all up to a frontier was told. It reports whether something is to be asked again.
func (l *link) reach(f wire.Frontier, state map[string]bool, idle func(error)) (again bool) {
	im := l.im
	im.mu.Lock()
	defer im.mu.Unlock()
	if state != nil {
		l.keepLocked(state)
	}
	l.epoch, l.position, l.telling = f.Epoch, f.Sequence, f.Sequence
	l.frontier = Frontier{f.Epoch, f.Sequence, f.Revision, time.UnixMilli(f.Time)}
	l.metrics.reached(l.frontier)
	l.reachedLocked(f.Interest)
	if !l.connected || !l.lost.IsZero() {
		l.connected, l.lost, l.reason = true, time.Time{}, ""
		im.wake.Fire()
	}
	l.idle = idle
	return l.recheckLocked()
}

// keepLocked forgets the members that are not in a state.
func (l *link) keepLocked(state map[string]bool) {
	for name := range l.announced {
		if !state[name] {
			delete(l.announced, name)
		}
	}
	for name, m := range l.im.members {
		if m.source == l.peer.ID && !state[name] {
			m.orphan(l, "process "+l.peer.ID+" judges it no longer")
		}
	}
	l.im.wake.Fire()
}

// gone notes that the peer tells no more of a member.
func (l *link) gone(name string) {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	delete(l.announced, name)
	if m := l.im.members[name]; m != nil && m.source == l.peer.ID {
		m.orphan(l, "process "+l.peer.ID+" judges it no longer")
		l.im.wake.Fire()
	}
}

// suspect has a member audited, and told again.
func (l *link) suspect(name string) {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	l.suspects[name] = true
	l.again[ask{member: name}] = true
}

// sourced returns the members of which the peer tells, by name.
func (l *link) sourced() (names []string) {
	l.im.mu.Lock()
	defer l.im.mu.Unlock()
	for name, m := range l.im.members {
		if m.source == l.peer.ID {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
