package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/notify/internal/webhook"
)

// Timing of a sender.
const (
	lookInterval = 10 * time.Second // without a trigger
	sendTimeout  = 10 * time.Second
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	// saveAfter is how many events are sent before the box is saved: as many are sent twice
	// when the process ends in between.
	saveAfter = 16
)

// sender sends events to one receiver. Its run alone uses what follows triggered.
type sender struct {
	opts      *Options
	receiver  Receiver
	client    *http.Client
	metrics   *metrics
	log       *slog.Logger
	triggered trigger.Trigger

	store   *store
	box     *box    // as it was stored last; nil: to be loaded
	hub     backoff // of the store
	sending backoff // of the receiver
}

func (s *sender) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.triggered:
		case <-timer.C:
		}
		if s.opts.IsLeader() {
			s.pass(ctx)
		} else {
			s.box, s.hub, s.sending = nil, backoff{}, backoff{} // another process may write it
			s.metrics.waiting(s.receiver.Name, 0)
		}
		now := time.Now()
		timer.Reset(min(s.hub.next(now), s.sending.next(now)))
	}
}

// pass collects what is new, also while the receiver is away: what comes and goes would be
// lost. Then it sends what waits.
func (s *sender) pass(ctx context.Context) {
	now := time.Now()
	if s.hub.waits(now) {
		return
	}
	overflow, err := s.collect(ctx)
	if err != nil {
		s.failed(ctx, &s.hub, err)
		return
	}
	for len(s.box.Pending) > 0 && !s.sending.waits(now) {
		failed, stored := s.sendSome(ctx)
		if stored != nil {
			s.failed(ctx, &s.hub, stored)
		}
		if failed != nil {
			s.failed(ctx, &s.sending, failed)
		}
		if failed != nil || stored != nil {
			return
		}
		s.sending = backoff{}
		s.metrics.waiting(s.receiver.Name, len(s.box.Pending)+overflow)
	}
	if s.hub = (backoff{}); overflow > 0 && len(s.box.Pending) == 0 {
		s.triggered.Fire() // there is room now
	}
}

func (s *sender) failed(ctx context.Context, b *backoff, err error) {
	if ctx.Err() != nil {
		return // the process ends
	}
	b.fail(time.Now(), err)
	s.log.Error("sending events failed", "failures", b.failures, "error", err)
}

// collect stores the events of what is new, before any of them is sent. It returns how many
// facts have no room.
func (s *sender) collect(ctx context.Context) (overflow int, err error) {
	if s.box == nil {
		b, err := s.store.load(ctx)
		if err != nil {
			return 0, err
		}
		s.box = b
	}
	facts, complete := s.opts.Source.Facts()
	next := s.box.clone()
	did := next.collect(s.opts.Origin, facts, complete, time.Now())
	if did.dropped > 0 {
		s.metrics.dropped.WithLabelValues(s.receiver.Name).Add(float64(did.dropped))
		s.log.Error("events were dropped: their receiver has not taken them for a week", "events", did.dropped)
	}
	if did.changed {
		if err := s.save(ctx, next); err != nil {
			return 0, err
		}
	}
	s.metrics.waiting(s.receiver.Name, len(s.box.Pending)+did.overflow)
	return did.overflow, nil
}

// backoff says until when nothing is tried after failures.
type backoff struct {
	failures int // consecutive
	until    time.Time
}

func (b *backoff) waits(now time.Time) bool { return now.Before(b.until) }

// next returns when to look again.
func (b *backoff) next(now time.Time) time.Duration {
	if !b.waits(now) {
		return lookInterval
	}
	return min(lookInterval, b.until.Sub(now))
}

// fail doubles the wait with each failure; a receiver may ask for more.
func (b *backoff) fail(now time.Time, err error) {
	wait := firstBackoff
	for range b.failures {
		wait = min(2*wait, maxBackoff)
	}
	var refused *webhook.RefusedError
	if errors.As(err, &refused) {
		wait = min(max(wait, refused.RetryAfter()), maxBackoff)
	}
	b.failures++
	b.until = now.Add(wait)
}

// sendSome sends the next events and stores that they were sent, also after a failure.
func (s *sender) sendSome(ctx context.Context) (failed, stored error) {
	next := s.box.clone()
	sent := 0
	for _, p := range s.box.Pending[:min(len(s.box.Pending), saveAfter)] {
		if failed = s.send(ctx, &p.Event); failed != nil {
			s.metrics.failed.WithLabelValues(s.receiver.Name).Inc()
			failed = fmt.Errorf("event %s: %w", p.Event.ID, failed)
			break
		}
		s.metrics.sent.WithLabelValues(s.receiver.Name).Inc()
		next.sent(p.Event.ID)
		sent++
	}
	if sent > 0 {
		stored = s.save(ctx, next)
	}
	return failed, stored
}

// save stores a box, even while the process ends: what was sent would be sent again. After an
// error the box is loaded again: it is not known what is stored.
func (s *sender) save(ctx context.Context, next *box) error {
	ctx = context.WithoutCancel(ctx) // the store bounds it
	if err := s.store.save(ctx, next); err != nil {
		s.box = nil
		return err
	}
	s.box = next
	return nil
}

// send sends one event. Only an answer of 2xx is success: a redirect is not followed.
func (s *sender) send(ctx context.Context, e *Event) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	keys, err := s.receiver.keys()
	if err != nil {
		return err
	}
	return webhook.PostEvent(ctx, s.client, s.receiver.URL, e.ID, e.body(), keys)
}
