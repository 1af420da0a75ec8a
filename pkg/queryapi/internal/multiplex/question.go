package multiplex

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// question is a subscription that is asked again and again.
type question struct {
	*stream
	sub      subscription
	sent     digest
	failures int // one after the other
}

// digest is of the answer that was sent last, which may be large; nil: there is none.
type digest *[sha256.Size]byte

// errRefused ends a question.
var errRefused = errors.New("the question is refused")

// ask sends the answer to a question whenever it has changed, until the stream ends or it is
// refused.
func (s *stream) ask(ctx context.Context, sub subscription) {
	defer s.budget.questions.Add(-1)
	q := &question{stream: s, sub: sub}
	for {
		var wait time.Duration
		var err error
		followed, w := false, newResponse()
		aborted := serve(s.options.Audit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			followed = true
			wait, err = q.follow(ctx, w)
		})), w, sub.request(s.request))
		if !followed { // what cannot be audited is not asked
			if err = w.settle(aborted); err == nil {
				err = q.tell(ctx, w)
			}
			wait = q.took(0, w)
		}
		if err != nil || sleep(ctx, wait) != nil {
			return
		}
	}
}

// follow asks a question until the stream ends or the question is refused, which are errors, or
// there is no first answer yet: then it returns after what time it is to be asked again. The codes that
// it writes are for the audit log.
func (q *question) follow(ctx context.Context, audit http.ResponseWriter) (time.Duration, error) {
	for answered := false; ; {
		changes, elsewhere := q.options.Changes(q.sub.url.Path), q.options.Elsewhere(q.sub.url.Path)
		// The slot is held until the answer is on its way: so many of them are in memory.
		select {
		case q.slots <- struct{}{}:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		w, took, err := q.measured(ctx)
		if err == nil {
			if !answered || w.code >= http.StatusBadRequest && !w.temporary() {
				audit.WriteHeader(w.code)
			}
			err = q.tell(ctx, w)
		}
		<-q.slots
		if err != nil {
			return 0, err
		}
		least := q.took(took, w)
		switch {
		case !w.temporary():
			answered = true
		case !answered:
			return least, nil
		default:
			changes = nil // it is asked again after the time, not at once
		}
		if waited, err := q.rest(ctx, took, least); err != nil || changes != nil && await(ctx, changes, elsewhere, q.options.Longest-waited) != nil {
			return 0, cmp.Or(err, context.Cause(ctx))
		}
	}
}

// measured asks a question once, and returns what that has cost.
func (q *question) measured(ctx context.Context) (w *response, cost time.Duration, err error) {
	end := q.meter.start()
	defer func() { cost = end() }() // also where it panics
	w, err = q.answer(ctx)
	return w, 0, err
}

// took takes note of an answer, and returns for how long the question is not asked again at least.
func (q *question) took(took time.Duration, w *response) time.Duration {
	if !w.temporary() {
		q.failures = 0
		return 0
	}
	q.failures++
	return max(q.pause(took), min(time.Second<<min(q.failures, 5), 30*time.Second))
}

// tell sends the answer to a question if it is another than before.
func (q *question) tell(ctx context.Context, w *response) error {
	if w.temporary() {
		q.sent = nil
		return q.fail(ctx, q.sub.id, "retry", w.body)
	}
	if w.code >= http.StatusBadRequest {
		return cmp.Or(q.fail(ctx, q.sub.id, "error", w.body), errRefused)
	}
	body := bytes.TrimSpace(w.body)
	sum := sha256.Sum256(body)
	if q.sent != nil && sum == *q.sent {
		return nil
	}
	q.sent = &sum
	return q.member(ctx, q.sub.id, "value", body)
}

// pause returns for how long a question that took some CPU time is not asked again, so that all of the
// caller's stay within the budget.
func (s *stream) pause(took time.Duration) time.Duration {
	const longest = time.Hour // within which the stream is opened again
	share := time.Duration(float64(took) * float64(s.budget.questions.Load()) / s.options.Share)
	return max(min(share, longest), s.options.Interval)
}

// rest waits for the pause of a question, which is another one when the caller has more or fewer of them,
// and returns how long it took.
func (s *stream) rest(ctx context.Context, took, least time.Duration) (time.Duration, error) {
	for began := time.Now(); ; {
		waited := time.Since(began)
		left := max(s.pause(took), least) - waited
		if left <= 0 {
			return waited, nil
		}
		if err := sleep(ctx, min(left, s.options.Longest)); err != nil {
			return waited, err
		}
	}
}

// answer asks a question once. Its caller has a slot.
func (q *question) answer(ctx context.Context) (*response, error) {
	w := newResponse()
	aborted := serve(q.options.Questions, w, q.sub.request(q.request))
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return w, w.settle(aborted)
}

// settle makes an answer of what was written, whole or not.
func (r *response) settle(aborted bool) error {
	if r.tooLarge {
		r.code = http.StatusRequestEntityTooLarge
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(r.code), Reason: metav1.StatusReasonRequestEntityTooLarge,
			Message: "the answer is too large for a stream: narrow it, or set limit",
		}
		var err error
		r.body, err = json.Marshal(status)
		return err
	}
	if aborted || r.code < http.StatusBadRequest && !json.Valid(r.body) {
		r.code, r.body = http.StatusInternalServerError, nil
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error { return await(ctx, nil, nil, d) }

// await returns when one of two channels is closed or after a time, with an error when ctx ends.
func await(ctx context.Context, closed, or <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-closed:
	case <-or:
	case <-timer.C:
	}
	return nil
}
