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

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
)

// stream is one watch as the Reflector sees it. Behind it one goroutine reads,
// decodes and encodes; when the connection breaks it resumes at the same
// resourceVersion by itself, so that the Reflector only hears of an end that
// needs a new list.
type stream struct {
	listWatch *listWatch
	opts      metav1.ListOptions
	cancel    context.CancelFunc
	events    chan watch.Event
	done      chan struct{}

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
	down bool // the watch cannot be opened
	why  string
}

// size is what items cost.
type size struct{ objects, bytes int64 }

// streamBuffer is how many events may wait between the two goroutines of a
// listWatch.
const streamBuffer = 128

// WatchWithContext opens a watch. It returns when the member has answered,
// however long the member is out of reach until then.
func (p *listWatch) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s := &stream{
		listWatch: p, opts: opts, rv: opts.ResourceVersion,
		initial: opts.SendInitialEvents != nil && *opts.SendInitialEvents,
		events:  make(chan watch.Event, streamBuffer), done: make(chan struct{}),
	}
	ctx, s.cancel = context.WithCancel(ctx)
	if s.initial {
		p.markSyncing()
	}
	c, err := s.open(ctx, false)
	if err != nil {
		s.cancel()
		s.slot.Release()
		return nil, err
	}
	p.stream, s.running = s, true
	s.markUp(ctx)
	go s.run(ctx, c)
	return s, nil
}

// markSyncing shows that a list is under way. Objects that are there already are
// Stale until it is complete.
func (p *listWatch) markSyncing() {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	switch p.state {
	case aggregate.Unknown:
		i.setStateLocked(p, aggregate.Syncing, "")
	case aggregate.Synced:
		i.setStateLocked(p, aggregate.Stale, "relisting")
	default:
		return
	}
	_ = p.checkCommit(i.commitLocked()) //nolint:errcheck // checkCommit has acted on it
}

// ResultChan returns the events.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// Stop ends the stream and waits for its goroutine.
func (s *stream) Stop() {
	s.cancel()
	<-s.done
	if s.listWatch.stream == s {
		s.listWatch.stream = nil
	}
}

// status reports whether the stream is cut off from the member, and why.
func (s *stream) status() (down bool, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down, s.why
}

// open makes the request, again and again while what is in the way may pass.
// It returns an error only when the Reflector must decide.
func (s *stream) open(ctx context.Context, again bool) (*watchResponse, error) {
	i := s.listWatch.informer
	delay := minProbeDelay
	for tries := 0; ; tries++ {
		if i.member.conn.current() == nil {
			s.markDown(ctx, ErrUnreachable)
		}
		a, err := i.member.conn.admit(ctx, again)
		if err != nil {
			return nil, err
		}
		if s.initial && s.slot == nil {
			if s.slot, err = i.member.manager.slots.Acquire(ctx, i.member.listSlots); err != nil {
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
		case connectionFailed, unauthorized, serverBusy:
			s.markDown(ctx, err)
			if kind == serverBusy {
				i.member.conn.recordKindError(i.kind, err)
			} else {
				i.member.conn.reportFailure(a, err)
			}
			// A connection that is gone is found out once, and then the member
			// is waited for. What fails while the member answers is this scope's.
			if kind != serverBusy && tries == 0 {
				continue
			}
			delay = longerDelay(delay)
			if err := sleep.For(ctx, delay); err != nil {
				return nil, err
			}
		case unsupported:
			if apierrors.IsNotAcceptable(err) && s.listWatch.informer.switchToJSON("not acceptable") {
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
	defer s.listWatch.chargeListed(size{})
	err := recoverPanic(func() error {
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
		s.listWatch.failed = p
		s.listWatch.stop()
	}
}

// finalError is the end of a stream that the Reflector must know of.
type finalError struct{ status *metav1.Status }

func (e *finalError) Error() string { return e.status.Message }

// resume decides how a stream continues whose connection has ended: with another
// connection, or not at all.
func (s *stream) resume(ctx context.Context, c *watchResponse, end error) (*watchResponse, error) {
	i := s.listWatch.informer
	var final *finalError
	switch {
	case errors.As(end, &final):
		s.send(ctx, watch.Event{Type: watch.Error, Object: final.status})
		return nil, nil
	case isRewound(end) != nil:
		i.rewound(isRewound(end))
		return nil, nil
	case errors.Is(end, decode.ErrTooLarge) && i.switchToJSON(end.Error()):
		// What answers may not speak protobuf at all, and then its text reads
		// as a length. As JSON a size is what has come.
		i.member.conn.recordKindError(i.kind, end)
		s.resumed++
	case errors.Is(end, decode.ErrTooLarge), errors.Is(end, errOverBudget):
		s.listWatch.overBudget = end.Error()
		s.listWatch.stop()
		return nil, nil
	case errors.Is(end, decode.ErrUnknownField), errors.Is(end, decode.ErrMalformed):
		i.member.conn.recordKindError(i.kind, end)
		// What was not requested in JSON is requested in it before it is suspect.
		if !i.switchToJSON(end.Error()) && c.requested == decode.JSON {
			s.suspect = true
			s.markDown(ctx, end)
		}
		s.resumed++
	case end == nil || errors.Is(end, io.EOF):
		// The server ends a watch after its timeout: that is no failure.
	default:
		i.member.conn.reportFailure(c.client, end)
		s.markDown(ctx, end)
	}
	if s.initial {
		// What came so far has no order to resume in.
		s.send(ctx, watch.Event{Type: watch.Error, Object: retryStatus("the watch ended before its initial events")})
		return nil, nil
	}
	i.restarts.Add(1)
	i.metrics.restarts.Inc()
	if s.resumed > 0 {
		if err := sleep.For(ctx, min(maxProbeDelay, minProbeDelay<<min(s.resumed, 7))); err != nil {
			return nil, nil
		}
	}
	s.resumed++
	next, err := s.open(ctx, true)
	if err != nil {
		if ctx.Err() == nil {
			if classify(err) == expired {
				s.listWatch.markExpired()
			}
			s.send(ctx, watch.Event{Type: watch.Error, Object: statusOf(err)})
		}
		return nil, nil
	}
	if !s.suspect {
		s.markUp(ctx)
	}
	return next, nil
}

// markDown shows the scope Stale, in band: the Reflector's goroutine is the one
// that writes.
func (s *stream) markDown(ctx context.Context, why error) {
	if s.initial {
		return // the scope is not Synced yet
	}
	if canceled(why) || errors.Is(why, ErrUnreachable) {
		why = s.listWatch.informer.member.conn.unreachable()
	}
	s.mu.Lock()
	was := s.down
	s.down, s.why = true, message.Clip(why.Error())
	s.mu.Unlock()
	switch {
	case was:
	case !s.running:
		s.listWatch.markStale(why)
	default:
		s.send(ctx, watch.Event{Type: watch.Bookmark, Object: &object{rv: s.rv}})
	}
}

// markStale shows the listWatch as disconnected.
func (p *listWatch) markStale(why error) {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.state == aggregate.Synced {
		i.setStateLocked(p, aggregate.Stale, why.Error())
		_ = p.checkCommit(i.commitLocked()) //nolint:errcheck // checkCommit has acted on it
	}
}

func (s *stream) markUp(ctx context.Context) {
	s.listWatch.informer.member.conn.clearError(string(s.listWatch.informer.kind))
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
	i := s.listWatch.informer
	s.floor = s.rv
	d, err := decode.New(i.res.GVK, c.encoding, i.rules)
	if err != nil {
		return fmt.Errorf("%w: %w", decode.ErrMalformed, err)
	}
	body := &coalescer{ctx: ctx, reader: c.body}
	events := d.Events(body, int(i.member.manager.opts.Budget.ResponseBytes))
	events.Charge = s.listWatch.chargeResponse
	defer events.Close()
	counted := uint64(0)
	var ev decode.Event
	for {
		if err := events.Next(&ev); err != nil {
			return err
		}
		now := time.Now()
		i.lastRead.Store(now.UnixNano())
		i.metrics.contact(now)
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
			s.markUp(ctx)
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
	i := s.listWatch.informer
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
			s.listWatch.chargeListed(size{})
		}
	case watch.Deleted:
		o.namespace, o.name = cloneKey(&ev.Record)
	default:
		if why := s.listWatch.whyUnfit(&ev.Record, ev.Unfit); why != "" {
			o = s.listWatch.unfitObject(&ev.Record, why)
			o.read, out.Object = read, o
		} else {
			ev.Record.Update = ev.Type == watch.Modified
			held := false
			i.itemsMu.Lock()
			if s.initial { // a relist: most has not changed
				o.item, held = i.scope.Held(&ev.Record)
			}
			if !held {
				o.item = i.scope.Item(&ev.Record)
			}
			i.itemsMu.Unlock()
			o.namespace, o.name = o.item.Key()
			o.rv = o.item.ResourceVersion()
		}
		if s.initial {
			s.slot.Progress()
			s.listed.objects++
			s.listed.bytes += o.size()
			if !s.listWatch.chargeListed(s.listed) {
				return out, fmt.Errorf("initial list: %w", errOverBudget)
			}
		}
	}
	if err := s.checkOrder(o.rv, ev.Type == watch.Bookmark); err != nil {
		return out, err
	}
	switch {
	case o.rv == "":
		o.rv = s.rv // to go on from: an event without one is no progress
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
	case serverBusy, connectionFailed:
		return err
	case expired:
		s.listWatch.markExpired()
	}
	return &finalError{status}
}

// switchToJSON makes the scope speak JSON from now on, which loses nothing. It
// reports whether it did not before.
func (i *informer) switchToJSON(why string) bool {
	if decode.Encoding(i.encoding.Swap(int32(decode.JSON))) == decode.JSON {
		return false
	}
	i.metrics.fallbacks.Inc()
	i.fallback.Add(1)
	i.log.Info("scope switched to JSON", "reason", why)
	return true
}

func cloneKey(r *aggregate.Record) (namespace, name string) {
	return string([]byte(r.Namespace)), string([]byte(r.Name))
}

// retryStatus is a status that makes the Reflector reopen the watch after a
// while, without a list.
func retryStatus(why string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: why}
}

func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		s := status.Status()
		s.Message = err.Error() // with the request
		return &s
	}
	return retryStatus(err.Error())
}
