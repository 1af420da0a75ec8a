package sim

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Fault spoils requests. The first that matches is used. Delay and BytesPerSecond
// combine with the others; of Hang, Reset, Status, Garbage and Huge set at most one.
type Fault struct {
	Verb  string               // as in Request; any when empty
	Kind  schema.GroupResource // any when zero
	Times int                  // requests to spoil; without end when 0

	Delay          time.Duration // before anything is answered
	BytesPerSecond int           // of the body, spread evenly
	Hang           bool          // no answer until the client gives up or the fault is cleared
	Reset          bool          // the connection is reset, other requests on it included
	Status         int           // an error Status with this code, such as 429, 500, 503 or 410
	RetryAfter     int           // seconds, with Status
	Truncate       int64         // the body breaks off after so many bytes and the stream is reset
	Garbage        bool          // a 200 whose body is noise
	Huge           int64         // a 200 whose body is so many bytes of a JSON list that does not end
}

// Faults are the faults in force at a member.
type Faults struct {
	mu     sync.Mutex
	active []*activeFault
	seen   int
}

type activeFault struct {
	Fault
	left    int
	cleared chan struct{}
	clear   func() // closes cleared
}

// Add puts a fault into force, behind those that are there; clear takes it back.
func (f *Faults) Add(fault Fault) (clear func()) {
	a := &activeFault{Fault: fault, left: fault.Times, cleared: make(chan struct{})}
	a.clear = sync.OnceFunc(func() { close(a.cleared) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = append(f.active, a)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.active = slices.DeleteFunc(f.active, func(o *activeFault) bool { return o == a })
		a.clear()
	}
}

// Clear takes all faults back.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.active {
		a.clear()
	}
	f.active = nil
}

// Seen is the number of requests spoilt so far.
func (f *Faults) Seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

func (f *Faults) take(req Request) *activeFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, a := range f.active {
		if a.Verb != "" && a.Verb != req.Verb || a.Kind != (schema.GroupResource{}) && a.Kind != req.Kind {
			continue
		}
		f.seen++
		if a.Times > 0 {
			if a.left--; a.left == 0 {
				f.active = slices.Delete(f.active, i, i+1)
			}
		}
		return a
	}
	return nil
}

// spoil does the fault. It returns the writer to go on with, nil when all is said.
func (a *activeFault) spoil(ctx context.Context, w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if !pause(ctx, a.Delay) {
		panic(http.ErrAbortHandler)
	}
	switch {
	case a.Hang:
		select {
		case <-ctx.Done():
		case <-a.cleared:
		}
		panic(http.ErrAbortHandler)
	case a.Reset:
		resetConn(r)
		panic(http.ErrAbortHandler)
	case a.Status != 0:
		if a.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(a.RetryAfter))
		}
		writeStatus(w, r, &metav1.Status{
			Status: metav1.StatusFailure, Code: int32(a.Status), Reason: reasons[a.Status],
			Message: fmt.Sprintf("injected fault %d", a.Status),
			Details: &metav1.StatusDetails{RetryAfterSeconds: int32(a.RetryAfter)},
		})
		return nil
	}
	w = &faultyWriter{ResponseWriter: w, ctx: ctx, rate: a.BytesPerSecond, left: a.Truncate, limited: a.Truncate > 0}
	switch {
	case a.Garbage:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("\x00\xff{\"kind\":\"Pod\",]\n\x17\x03\x01 not what you asked for"))
		return nil
	case a.Huge > 0:
		writeHuge(w, a.Huge)
		return nil
	}
	return w
}

var reasons = map[int]metav1.StatusReason{
	401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound,
	410: metav1.StatusReasonExpired, 429: metav1.StatusReasonTooManyRequests, 500: metav1.StatusReasonInternalError,
	503: metav1.StatusReasonServiceUnavailable, 504: metav1.StatusReasonTimeout,
}

func writeHuge(w http.ResponseWriter, n int64) {
	w.Header().Set("Content-Type", "application/json")
	chunk := []byte(`{"metadata":{"name":"filler","namespace":"default"},"data":{"k":"`)
	for len(chunk) < 32<<10-4 {
		chunk = append(chunk, 'x')
	}
	chunk = append(chunk, `"}},`...)
	head, _ := w.Write([]byte(`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`))
	for sent := int64(head); sent < n; {
		m, err := w.Write(chunk[:min(int64(len(chunk)), n-sent)])
		if err != nil {
			return // the client has had enough
		}
		sent += int64(m)
	}
}

// pause reports false when the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// faultyWriter slows a body down or breaks it off.
type faultyWriter struct {
	http.ResponseWriter
	ctx     context.Context // of the request
	rate    int
	left    int64
	limited bool
}

func (w *faultyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *faultyWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		part := p
		if w.rate > 0 { // ten portions a second
			part = part[:min(len(part), max(1, w.rate/10))]
		}
		if w.limited {
			part = part[:min(int64(len(part)), w.left)]
		}
		n, err := w.ResponseWriter.Write(part)
		written += n
		w.left -= int64(n)
		p = p[n:]
		if err != nil {
			return written, err
		}
		flush := w.rate > 0 || w.limited && w.left == 0
		if flush {
			if err := http.NewResponseController(w.ResponseWriter).Flush(); err != nil {
				return written, err
			}
		}
		if w.limited && w.left == 0 {
			panic(http.ErrAbortHandler)
		}
		if w.rate > 0 && !pause(w.ctx, time.Duration(n)*time.Second/time.Duration(w.rate)) {
			panic(http.ErrAbortHandler)
		}
	}
	return written, nil
}
