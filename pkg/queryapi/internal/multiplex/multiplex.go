package multiplex

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options configure a Handler. Handler, Changes and Check are required.
type Options struct {
	// Handler serves subscriptions. Their requests have the context of the stream's request,
	// with its caller.
	Handler http.Handler
	// Again serves a question that Handler has answered before; nil: Handler does.
	Again http.Handler
	// Changes returns a channel that is closed when the answer to a question may have changed.
	Changes func(path string) <-chan struct{}
	// Check returns why the credentials of the caller of a stream do not count any more, "" while
	// they do or nobody knows.
	Check func(stream *http.Request) string

	// Interval is the least time between two answers to a question; 0 means 250 ms.
	Interval time.Duration
	// Longest is the time after which a question is asked again whatever happens, since grants
	// change, too; 0 means 10 s.
	Longest time.Duration
	// Share is the part of one core that all questions of a stream may take; 0 means 0.03.
	Share float64
	// Beat is the time between signs of life; 0 means 10 s. CheckInterval is that between checks
	// of the caller's credentials; 0 means 15 s.
	Beat, CheckInterval time.Duration
	// WriteTimeout is how long a client may take to read what there is; 0 means 30 s.
	WriteTimeout time.Duration
}

// Handler serves streams. It is safe for concurrent use.
type Handler struct{ options Options }

// New returns a Handler.
func New(o Options) (*Handler, error) {
	if o.Handler == nil || o.Changes == nil || o.Check == nil {
		return nil, errors.New("multiplex: Handler, Changes and Check are required")
	}
	for _, d := range []time.Duration{o.Interval, o.Longest, o.Beat, o.CheckInterval, o.WriteTimeout, time.Duration(o.Share * float64(time.Second))} {
		if d < 0 {
			return nil, errors.New("multiplex: times must not be negative")
		}
	}
	if o.Again == nil {
		o.Again = o.Handler
	}
	o.Interval, o.Longest = cmp.Or(o.Interval, 250*time.Millisecond), cmp.Or(o.Longest, 10*time.Second)
	o.Beat, o.CheckInterval = cmp.Or(o.Beat, 10*time.Second), cmp.Or(o.CheckInterval, 15*time.Second)
	o.WriteTimeout, o.Share = cmp.Or(o.WriteTimeout, 30*time.Second), cmp.Or(o.Share, 0.03)
	return &Handler{o}, nil
}

// stream is one open stream.
type stream struct {
	options   Options
	request   *http.Request // with the context that ends with the stream
	out       *output
	slots     chan struct{} // a question holds one while it is answered
	questions int
}

// maxConcurrent bounds the questions of one stream that are answered at once.
const maxConcurrent = 4

// errSessionEnded ends a stream whose caller's credentials do not count any more.
var errSessionEnded = errors.New("the session has ended")

// Serve serves a stream until the request's context ends. Errors are before anything is written.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request) error {
	subscriptions, err := parse(r.URL.Query())
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	s := &stream{options: h.options, request: r.WithContext(ctx), out: newOutput(), slots: make(chan struct{}, maxConcurrent)}
	for _, sub := range subscriptions {
		if !sub.watch {
			s.questions++
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // of proxies that would hold lines back
	w.WriteHeader(http.StatusOK)

	var workers sync.WaitGroup
	for _, sub := range subscriptions {
		workers.Go(func() {
			if sub.watch {
				s.watch(ctx, sub)
			} else {
				s.ask(ctx, sub)
			}
		})
	}
	workers.Go(func() { s.beat(ctx, end) })
	joined := make(chan struct{})
	go func() { workers.Wait(); close(joined) }()
	err = s.out.write(w, h.options.WriteTimeout, joined)
	end(err)
	<-joined
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone or does not read
	}
	return nil
}

// beat sends signs of life, and ends the stream with the session.
func (s *stream) beat(ctx context.Context, end context.CancelCauseFunc) {
	beat, check := time.NewTicker(s.options.Beat), time.NewTicker(s.options.CheckInterval)
	defer beat.Stop()
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-beat.C:
			if s.put(ctx, map[string]any{"beat": now.UTC().Format(time.RFC3339Nano)}) != nil {
				return
			}
		case <-check.C:
			if why := s.options.Check(s.request); why != "" {
				_ = s.put(ctx, map[string]any{"session": map[string]string{"ended": why}}) // the client may be gone
				end(errSessionEnded)
				return
			}
		}
	}
}

// put sends a value as a line.
func (s *stream) put(ctx context.Context, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.out.put(ctx, line)
}

// member sends a line with a member whose value is JSON already.
func (s *stream) member(ctx context.Context, id, name string, value []byte) error {
	return s.out.put(ctx, []byte(`{"id":"`+id+`","`+name+`":`), value, []byte("}"))
}

// fail sends the Status of a response.
func (s *stream) fail(ctx context.Context, id, name string, status []byte) error {
	status = bytes.TrimSpace(status)
	if !json.Valid(status) {
		text, err := json.Marshal(apierrors.NewInternalError(errors.New("see the server's log")).Status())
		if err != nil {
			return err
		}
		status = text
	}
	return s.member(ctx, id, name, status)
}

// watch passes on the events of a watch, until it ends.
func (s *stream) watch(ctx context.Context, sub subscription) {
	w := &eventWriter{response: newResponse(), event: func(line []byte) error { return s.member(ctx, sub.id, "event", line) }}
	aborted := serve(s.options.Handler, w, sub.request(s.request))
	switch {
	case ctx.Err() != nil:
	case w.code >= http.StatusBadRequest:
		_ = s.fail(ctx, sub.id, "error", w.body)
	case aborted:
		_ = s.fail(ctx, sub.id, "error", nil)
	default:
		_ = s.member(ctx, sub.id, "end", []byte("true"))
	}
}

// serve serves one request, and reports whether its handler gave up: its panics end the
// subscription, and nothing else.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		switch cause := recover(); {
		case cause == nil:
		case cause == http.ErrAbortHandler: //nolint:errorlint // as net/http compares it
			aborted = true
		default:
			panic(cause)
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

// ask sends the answer to a question whenever it has changed, until the stream ends or it is
// refused.
func (s *stream) ask(ctx context.Context, sub subscription) {
	h := s.options.Handler
	var sent digest
	failures := 0
	for {
		changes := s.options.Changes(sub.url.Path)
		// The slot is held until the answer is on its way: so many of them are in memory.
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		w, err := s.answer(ctx, h, sub)
		wait := s.pause(time.Since(began))
		if err == nil {
			err = s.tell(ctx, sub.id, w, &sent)
		}
		<-s.slots
		if err != nil {
			return // the stream has ended, or the question is refused
		}
		if w.temporary() {
			failures++
			wait = max(wait, min(time.Second<<min(failures, 5), 30*time.Second))
			changes = nil // it is asked again after the time, not at once
		} else {
			h, failures = s.options.Again, 0
		}
		if sleep(ctx, wait) != nil || changes != nil && await(ctx, changes, s.options.Longest-wait) != nil {
			return
		}
	}
}

// digest is of the answer that was sent last, which may be large; nil: there is none.
type digest *[sha256.Size]byte

// errRefused ends a question.
var errRefused = errors.New("the question is refused")

// tell sends the answer to a question if it is another than before.
func (s *stream) tell(ctx context.Context, id string, w *response, sent *digest) error {
	if w.temporary() {
		*sent = nil
		return s.fail(ctx, id, "retry", w.body)
	}
	if w.code >= http.StatusBadRequest {
		return cmp.Or(s.fail(ctx, id, "error", w.body), errRefused)
	}
	body := bytes.TrimSpace(w.body)
	sum := sha256.Sum256(body)
	if *sent != nil && sum == **sent {
		return nil
	}
	*sent = &sum
	return s.member(ctx, id, "value", body)
}

// pause returns for how long a question that took some time is not asked again, so that all of them
// stay within the budget.
func (s *stream) pause(took time.Duration) time.Duration {
	const longest = time.Hour // within which the stream is opened again
	share := time.Duration(float64(took) * float64(s.questions) / s.options.Share)
	return max(min(share, longest), s.options.Interval)
}

// answer asks a question once. Its caller has a slot.
func (s *stream) answer(ctx context.Context, h http.Handler, sub subscription) (*response, error) {
	w := newResponse()
	aborted := serve(h, w, sub.request(s.request))
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if w.tooLarge {
		w.code = http.StatusRequestEntityTooLarge
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(w.code), Reason: metav1.StatusReasonRequestEntityTooLarge,
			Message: "the answer is too large for a stream: narrow it, or set limit",
		}
		var err error
		if w.body, err = json.Marshal(status); err != nil {
			return nil, err
		}
	} else if aborted || w.code < http.StatusBadRequest && !json.Valid(w.body) {
		w.code, w.body = http.StatusInternalServerError, nil
	}
	return w, nil
}

func sleep(ctx context.Context, d time.Duration) error { return await(ctx, nil, d) }

// await returns when a channel is closed or after a time, with an error when ctx ends.
func await(ctx context.Context, closed <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-closed:
	case <-timer.C:
	}
	return nil
}
