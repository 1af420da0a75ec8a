package multiplex

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/internal/cputime"
)

// Options configure a Handler. Handler, Caller, Changes and Check are required.
type Options struct {
	// Handler serves watches, and Questions a question each time that it is asked; nil: Handler does. Their
	// requests have the context of the stream's request, with its caller.
	Handler, Questions http.Handler
	// Audit wraps what serves a question from when it is first asked until it is not asked any more. That
	// writes the code of the first answer and, where the question is refused later, that of the refusal.
	// Unless it is called, what was written instead is the answer. nil: there is none.
	Audit func(http.Handler) http.Handler
	// Caller returns the name of the caller of a stream.
	Caller func(stream *http.Request) string
	// Changes returns a channel that is closed when the answer to a question may have changed.
	Changes func(path string) <-chan struct{}
	// Elsewhere is Changes of what other processes answer of it; nil, and a nil channel: none do.
	Elsewhere func(path string) <-chan struct{}
	// Check returns why the credentials of the caller of a stream do not count any more, "" while
	// they do or nobody knows.
	Check func(stream *http.Request) string

	// Interval is the least time between two answers to a question; 0 means 250 ms.
	Interval time.Duration
	// Longest is the time after which a question is asked again whatever happens, since grants
	// change, too; 0 means 10 s.
	Longest time.Duration
	// Share is the part of one core that all questions of a caller may take, whatever streams they
	// are in; 0 means 0.03.
	Share float64
	// CPU returns the CPU time that the process has used; nil means the system's.
	CPU func() time.Duration
	// Beat is the time between signs of life; 0 means 10 s. CheckInterval is that between checks
	// of the caller's credentials; 0 means 15 s.
	Beat, CheckInterval time.Duration
	// WriteTimeout is how long a client may take to read what there is; 0 means 30 s.
	WriteTimeout time.Duration
}

// Handler serves streams. It is safe for concurrent use.
type Handler struct {
	options Options
	budgets budgets
	meter   *meter
}

// New returns a Handler.
func New(o Options) (*Handler, error) {
	if o.Handler == nil || o.Caller == nil || o.Changes == nil || o.Check == nil {
		return nil, errors.New("multiplex: Handler, Caller, Changes and Check are required")
	}
	for _, d := range []time.Duration{o.Interval, o.Longest, o.Beat, o.CheckInterval, o.WriteTimeout, time.Duration(o.Share * float64(time.Second))} {
		if d < 0 {
			return nil, errors.New("multiplex: times must not be negative")
		}
	}
	if o.Questions == nil {
		o.Questions = o.Handler
	}
	if o.Elsewhere == nil {
		o.Elsewhere = func(string) <-chan struct{} { return nil }
	}
	if o.Audit == nil {
		o.Audit = func(h http.Handler) http.Handler { return h }
	}
	if o.CPU == nil {
		o.CPU = cputime.Process
	}
	o.Interval, o.Longest = cmp.Or(o.Interval, 250*time.Millisecond), cmp.Or(o.Longest, 10*time.Second)
	o.Beat, o.CheckInterval = cmp.Or(o.Beat, 10*time.Second), cmp.Or(o.CheckInterval, 15*time.Second)
	o.WriteTimeout, o.Share = cmp.Or(o.WriteTimeout, 30*time.Second), cmp.Or(o.Share, 0.03)
	return &Handler{options: o, budgets: budgets{of: map[string]*budget{}}, meter: &meter{cpu: o.CPU}}, nil
}

// stream is one open stream.
type stream struct {
	options Options
	request *http.Request // with the context that ends with the stream
	out     *output
	slots   chan struct{} // a question holds one while it is answered
	budget  *budget       // of the caller
	meter   *meter        // of all callers
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
	name := h.options.Caller(r)
	s := &stream{options: h.options, request: r.WithContext(ctx), out: newOutput(), slots: make(chan struct{}, maxConcurrent), budget: h.budgets.open(name), meter: h.meter}
	defer h.budgets.close(name)
	for _, sub := range subscriptions {
		if !sub.watch {
			s.budget.questions.Add(1) // before any is asked
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
