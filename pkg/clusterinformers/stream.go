package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/backoff"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
)

// stream is one watch as the Reflector sees it. Behind it one goroutine reads,
// decodes and encodes; when the connection breaks it goes on at the same
// resourceVersion by itself, so that the Reflector only hears of an end that
// needs a new list.
type stream struct {
	part   *part
	opts   metav1.ListOptions
	cancel context.CancelFunc
	events chan watch.Event
	done   chan struct{}

	running bool // events reach the Reflector; before, the Reflector's goroutine waits in open

	// The goroutine's own:
	rv      string
	floor   string      // nothing older may come any more
	initial bool        // the initial events are not complete: there is no resuming yet
	slot    *quota.Slot // while initial
	listed  size
	resumed int  // times reopened without an event since
	suspect bool // what came last made no sense: the scope is Stale until something does

	mu   sync.Mutex
	down bool // as standing reports
	why  string
}

// size is what items cost.
type size struct{ objects, bytes int64 }

// streamBuffer is how many events may wait between the two goroutines of a
// part.
const streamBuffer = 128

// WatchWithContext opens a watch. It returns when the member has answered,
// however long the member is out of reach until then.
func (p *part) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s := &stream{
		part: p, opts: opts, rv: opts.ResourceVersion,
		initial: opts.SendInitialEvents != nil && *opts.SendInitialEvents,
		events:  make(chan watch.Event, streamBuffer), done: make(chan struct{}),
	}
	ctx, s.cancel = context.WithCancel(ctx)
	if s.initial {
		p.syncing()
	}
	c, err := s.open(ctx, false)
	if err != nil {
		s.cancel()
		s.slot.Release()
		return nil, err
	}
	p.stream, s.running = s, true
	s.unmark(ctx)
	go s.run(ctx, c)
	return s, nil
}

// syncing shows that a list is under way. Objects that are there already are
// Stale until it is complete.
func (p *part) syncing() {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	switch p.state {
	case aggregate.Unknown:
		i.setPartLocked(p, aggregate.Syncing, "")
	case aggregate.Synced:
		i.setPartLocked(p, aggregate.Stale, "listing again")
	default:
		return
	}
	_ = p.committed(i.commit()) //nolint:errcheck // committed has acted on it
}

// ResultChan returns the events.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// Stop ends the stream and waits for its goroutine.
func (s *stream) Stop() {
	s.cancel()
	<-s.done
	if s.part.stream == s {
		s.part.stream = nil
	}
}

// standing reports whether the stream is cut off from the member, and why.
func (s *stream) standing() (down bool, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down, s.why
}

// open makes the request, again and again while what is in the way may pass.
// It returns an error only when the Reflector must decide.
func (s *stream) open(ctx context.Context, again bool) (*watchResponse, error) {
	i := s.part.informer
	delay := probeFirst
	for tries := 0; ; tries++ {
		if i.member.conn.current() == nil {
			s.mark(ctx, ErrUnreachable)
		}
		a, err := i.member.conn.admit(ctx, again)
		if err != nil {
			return nil, err
		}
		if s.initial && s.slot == nil {
			if s.slot, err = i.member.manager.slots.Acquire(ctx, i.member.syncs); err != nil {
				return nil, err
			}
		}
		c, err := s.request(ctx, a)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		again = true
		kind := classify(err)
		switch kind {
		case broken, denied, busy:
			s.mark(ctx, err)
			if kind == busy {
				i.member.conn.noteOf(i.kind, err)
			} else {
				i.member.conn.failed(a, err)
			}
			// A connection that is gone is found out once, and then the member
			// is waited for. What fails while the member answers is this scope's.
			if kind != busy && tries == 0 {
				continue
			}
			delay = longer(delay)
			if err := backoff.Sleep(ctx, delay); err != nil {
				return nil, err
			}
		case unable:
			if apierrors.IsNotAcceptable(err) && s.part.informer.toJSON("not acceptable") {
				continue
			}
			return nil, err
		default:
			return nil, err
		}
	}
}

// run reads until the stream is stopped or only the Reflector can go on.
func (s *stream) run(ctx context.Context, c *watchResponse) {
	defer close(s.done)
	defer close(s.events)
	defer s.slot.Release()
	defer s.part.settle(size{})
	err := safely(func() error {
		for {
			end := s.read(ctx, c)
			c.close()
			if ctx.Err() != nil {
				return nil
			}
			next, err := s.resume(ctx, c, end)
			if err != nil || next == nil {
				return err
			}
			c = next
		}
	})
	var p *panicError
	if errors.As(err, &p) {
		c.close()
		s.part.failed = p
		s.part.stop()
	}
}

// finalError is the end of a stream that the Reflector is told of.
type finalError struct{ status *metav1.Status }

func (e *finalError) Error() string { return e.status.Message }

// resume decides how a stream goes on whose connection has ended: with another
// connection, or not at all.
func (s *stream) resume(ctx context.Context, c *watchResponse, end error) (*watchResponse, error) {
	i := s.part.informer
	var final *finalError
	switch {
	case errors.As(end, &final):
		s.send(ctx, watch.Event{Type: watch.Error, Object: final.status})
		return nil, nil
	case isRewound(end) != nil:
		i.rewound(isRewound(end))
		return nil, nil
	case errors.Is(end, decode.ErrTooLarge) && i.toJSON(end.Error()):
		// What answers may not speak protobuf at all, and then its text reads
		// as a length. As JSON a size is what has come.
		i.member.conn.noteOf(i.kind, end)
		s.resumed++
	case errors.Is(end, decode.ErrTooLarge), errors.Is(end, errOverBudget):
		s.part.over = end.Error()
		s.part.stop()
		return nil, nil
	case errors.Is(end, decode.ErrUnknownField), errors.Is(end, decode.ErrMalformed):
		i.member.conn.noteOf(i.kind, end)
		// What was not asked for in JSON is asked for in it before it is suspect.
		if !i.toJSON(end.Error()) && c.asked == decode.JSON {
			s.suspect = true
			s.mark(ctx, end)
		}
		s.resumed++
	case end == nil || errors.Is(end, io.EOF):
		// The server ends a watch after its timeout: that is no trouble.
	default:
		i.member.conn.failed(c.access, end)
		s.mark(ctx, end)
	}
	if s.initial {
		// What came so far has no order to resume in.
		s.send(ctx, watch.Event{Type: watch.Error, Object: tryAgain("the stream ended before the initial events did")})
		return nil, nil
	}
	i.restarts.Add(1)
	i.metrics.restarts.Inc()
	if s.resumed > 0 {
		if err := backoff.Sleep(ctx, min(probeMax, probeFirst<<min(s.resumed, 7))); err != nil {
			return nil, nil
		}
	}
	s.resumed++
	next, err := s.open(ctx, true)
	if err != nil {
		if ctx.Err() == nil {
			if classify(err) == expired {
				s.part.expire()
			}
			s.send(ctx, watch.Event{Type: watch.Error, Object: statusOf(err)})
		}
		return nil, nil
	}
	if !s.suspect {
		s.unmark(ctx)
	}
	return next, nil
}

// mark shows the scope Stale, in band: the Reflector's goroutine is the one
// that writes.
func (s *stream) mark(ctx context.Context, why error) {
	if s.initial {
		return // the scope is not Synced yet
	}
	if ended(why) || errors.Is(why, ErrUnreachable) {
		why = s.part.informer.member.conn.why()
	}
	s.mu.Lock()
	was := s.down
	s.down, s.why = true, message.Clip(why.Error())
	s.mu.Unlock()
	switch {
	case was:
	case !s.running:
		s.part.stale(why)
	default:
		s.send(ctx, watch.Event{Type: watch.Bookmark, Object: &object{rv: s.rv}})
	}
}

// stale shows the part cut off.
func (p *part) stale(why error) {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.state == aggregate.Synced {
		i.setPartLocked(p, aggregate.Stale, why.Error())
		_ = p.committed(i.commit()) //nolint:errcheck // committed has acted on it
	}
}

func (s *stream) unmark(ctx context.Context) {
	s.part.informer.member.conn.over(string(s.part.informer.kind))
	s.mu.Lock()
	was := s.down
	s.down, s.why = false, ""
	s.mu.Unlock()
	if was {
		s.send(ctx, watch.Event{Type: watch.Bookmark, Object: &object{rv: s.rv}})
	}
}

// send hands an event to the Reflector, unless the stream is stopped first.
func (s *stream) send(ctx context.Context, e watch.Event) bool {
	select {
	case s.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// read decodes events until the connection ends.
func (s *stream) read(ctx context.Context, c *watchResponse) error {
	i := s.part.informer
	s.floor = s.rv
	d, err := decode.New(i.res.GVK, c.encoding, i.rules)
	if err != nil {
		return fmt.Errorf("%w: %w", decode.ErrMalformed, err)
	}
	body := &gatherer{ctx: ctx, r: c.body}
	events := d.Events(body, int(i.member.manager.opts.Budget.ResponseBytes))
	events.Charge = s.part.receiving
	defer events.Close()
	counted := uint64(0)
	var ev decode.Event
	for {
		if err := events.Next(&ev); err != nil {
			return err
		}
		now := time.Now()
		i.heard.Store(now.UnixNano())
		i.metrics.heard(now)
		if !s.initial {
			body.count(now)
		}
		if n := d.Fallbacks(); n != counted {
			i.fallback.Add(n - counted)
			i.metrics.fallbacks.Add(float64(n - counted))
			counted = n
		}
		s.resumed = 0
		if s.suspect {
			s.suspect = false
			s.unmark(ctx)
		}
		out, err := s.event(&ev, now)
		if err != nil {
			return err
		}
		if !s.send(ctx, out) {
			return context.Cause(ctx)
		}
	}
}

// event turns what was read into what the Reflector takes.
func (s *stream) event(ev *decode.Event, read time.Time) (watch.Event, error) {
	i := s.part.informer
	out := watch.Event{Type: ev.Type}
	if ev.Type == watch.Error {
		return out, s.statusError(ev.Status)
	}
	o := &object{rv: ev.Record.ResourceVersion, read: read}
	out.Object = o
	switch ev.Type {
	case watch.Bookmark:
		if ev.InitialEventsEnd {
			o.first = true
			s.initial = false
			s.floor = o.rv
			s.slot.Release()
			s.part.settle(size{})
		}
	case watch.Deleted:
		o.namespace, o.name = cloneKey(&ev.Record)
	default:
		if why := s.part.unfit(&ev.Record, ev.Unfit); why != "" {
			o = s.part.unfitObject(&ev.Record, why)
			o.read, out.Object = read, o
		} else {
			ev.Record.Update = ev.Type == watch.Modified
			held := false
			i.items.Lock()
			if s.initial { // a relist: most has not changed
				o.item, held = i.scope.Held(&ev.Record)
			}
			if !held {
				o.item = i.scope.Item(&ev.Record)
			}
			i.items.Unlock()
			o.namespace, o.name = o.item.Key()
			o.rv = o.item.ResourceVersion()
		}
		if s.initial {
			s.slot.Progress()
			s.listed.objects++
			s.listed.bytes += o.size()
			if !s.part.settle(s.listed) {
				return out, fmt.Errorf("first list: %w", errOverBudget)
			}
		}
	}
	if err := s.told(o.rv, ev.Type == watch.Bookmark); err != nil {
		return out, err
	}
	switch {
	case o.rv == "":
		o.rv = s.rv // to go on from: an event that names none tells of no progress
	case !s.initial:
		s.rv = o.rv
	}
	return out, nil
}

// statusError turns an error event into the end of the connection, or of the
// stream.
func (s *stream) statusError(status *metav1.Status) error {
	err := apierrors.FromObject(status)
	switch classify(err) {
	case busy, broken:
		return err
	case expired:
		s.part.expire()
	}
	return &finalError{status}
}

// toJSON makes the scope speak JSON from now on, which loses nothing. It
// reports whether it did not before.
func (i *informer) toJSON(why string) bool {
	if decode.Encoding(i.encoding.Swap(int32(decode.JSON))) == decode.JSON {
		return false
	}
	i.metrics.fallbacks.Inc()
	i.fallback.Add(1)
	i.log.Info("scope changes to JSON", "reason", why)
	return true
}

func cloneKey(r *aggregate.Record) (namespace, name string) {
	return string([]byte(r.Namespace)), string([]byte(r.Name))
}

// tryAgain is a status that makes the Reflector open the watch anew after a
// while, without a list.
func tryAgain(why string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: why}
}

func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		s := status.Status()
		s.Message = err.Error() // with what was asked
		return &s
	}
	return tryAgain(err.Error())
}
