package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/trigger"
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

var receiverName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (r *Receiver) validate() error {
	u, err := url.Parse(r.URL)
	switch {
	case !receiverName.MatchString(r.Name):
		return fmt.Errorf("name: %q is not a DNS label", r.Name)
	case err != nil:
		return fmt.Errorf("url: %w", err)
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("url: %q is not an http or https URL", u.Redacted())
	case u.User != nil:
		return errors.New("url: it has a user: events are authenticated by their signature")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("url: %q: http is for addresses of this machine only", u.Redacted())
	case len(r.Key) < minKey:
		return fmt.Errorf("key: it has %d bytes, at least %d are required", len(r.Key), minKey)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// sender sends events to one receiver. Its run alone uses what follows triggered.
type sender struct {
	opts      *Options
	receiver  Receiver
	client    *http.Client
	metrics   *metrics
	log       *slog.Logger
	triggered trigger.Trigger

	store    *store
	box      *box // as it was stored last; nil: to be loaded
	failures int  // consecutive
}

func (s *sender) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.triggered:
			if s.failures > 0 {
				continue // the backoff is not cut short
			}
		case <-timer.C:
		}
		wait := lookInterval
		if !s.opts.IsLeader() {
			s.box, s.failures = nil, 0 // another process may write it
			s.metrics.waiting(s.receiver.Name, 0)
		} else if err := s.pass(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			s.failures++
			wait = s.backoff(err)
			s.log.Error("sending events failed", "failures", s.failures, "error", err)
		} else {
			s.failures = 0
		}
		timer.Reset(wait)
	}
}

// backoff doubles with each failure; a receiver may ask for more.
func (s *sender) backoff(err error) time.Duration {
	wait := firstBackoff
	for range s.failures - 1 {
		wait = min(2*wait, maxBackoff)
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		wait = min(max(wait, refused.retryAfter), maxBackoff)
	}
	return wait
}

// pass collects what is new and sends what waits.
func (s *sender) pass(ctx context.Context) error {
	if s.box == nil {
		b, err := s.store.load(ctx)
		if err != nil {
			return err
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
	if did.changed { // before anything of it is sent
		if err := s.save(ctx, next); err != nil {
			return err
		}
	}
	s.metrics.waiting(s.receiver.Name, len(s.box.Pending)+did.overflow)
	for len(s.box.Pending) > 0 {
		if err := s.sendSome(ctx); err != nil {
			return err
		}
		s.metrics.waiting(s.receiver.Name, len(s.box.Pending)+did.overflow)
	}
	if did.overflow > 0 {
		s.triggered.Fire() // there is room now
	}
	return nil
}

// sendSome sends the next events and saves that they were sent, also after a failure.
func (s *sender) sendSome(ctx context.Context) error {
	next := s.box.clone()
	sent := 0
	var failed error
	for _, e := range s.box.Pending[:min(len(s.box.Pending), saveAfter)] {
		if failed = s.send(ctx, &e); failed != nil {
			s.metrics.failed.WithLabelValues(s.receiver.Name).Inc()
			failed = fmt.Errorf("event %s: %w", e.ID, failed)
			break
		}
		s.metrics.sent.WithLabelValues(s.receiver.Name).Inc()
		next.sent(e.ID)
		sent++
	}
	if sent > 0 {
		if err := s.save(ctx, next); err != nil {
			return errors.Join(failed, err)
		}
	}
	return failed
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

// refusedError is the answer of a receiver that has not taken an event.
type refusedError struct {
	status     int
	body       string
	retryAfter time.Duration
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the receiver answered %d %s: %q", e.status, http.StatusText(e.status), e.body)
}

// send sends one event. Only an answer of 2xx is success: a redirect is not followed.
func (s *sender) send(ctx context.Context, e *Event) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	body := e.body()
	signer, err := standardwebhooks.NewWebhookRaw(s.receiver.Key)
	if err != nil {
		return err
	}
	now := time.Now()
	signature, err := signer.Sign(e.ID, now, body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.receiver.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set(standardwebhooks.HeaderWebhookID, e.ID)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	resp, err := s.client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL, which may hold a token
		}
		return err
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) //nolint:errcheck // The status decides.
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode/100 == 2 {
		return nil
	}
	return &refusedError{resp.StatusCode, clip.Line(string(text), maxAnswer), retryAfter(resp.Header.Get("Retry-After"))}
}

const maxAnswer = 256 // bytes of a refusal that are shown

// retryAfter parses the header as seconds; its other form, a date, is rare.
func retryAfter(text string) time.Duration {
	seconds, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
