package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/internal/trigger"
)

// alivePath is where a process says that it answers, and nothing else.
const alivePath = "/query/v1/-alive"

// Alive answers who asks whether the process answers, before anything that may take its time.
func Alive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == alivePath {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// LostError is the error of a request to a process that does not answer.
type LostError struct {
	Process string
	Err     error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("process %s does not answer: %v", e.Process, e.Err)
}

// Unwrap returns why.
func (e *LostError) Unwrap() error { return e.Err }

// Times of a health.
const (
	suspectAfter = time.Second            // without a first byte of an answer
	aliveTimeout = 2 * time.Second        // for the least that a process can answer
	aliveEvery   = 500 * time.Millisecond // that a process is asked which does not answer
)

// health knows which processes do not answer, so that one request waits for each of them, and not all. A request that waits, or
// fails, only raises a suspicion: a large answer takes its time. What decides is whether the process answers the least
// that it can be asked, which one goroutine of each suspect asks.
type health struct {
	log  *slog.Logger
	live func() []Peer
	wake trigger.Trigger

	mu    sync.Mutex
	peers map[Peer]*condition // only of those that are suspected, lost, or waited for
}

// condition is how a process is. One that has started again is another Peer.
type condition struct {
	lost    error // nil: it answers, as far as is known
	suspect bool
	asking  bool
	waiting map[*waiter]struct{}
}

// waiter is a request that has no first byte.
type waiter struct{ lose func(error) }

func newHealth(log *slog.Logger, live func() []Peer) *health {
	return &health{log: log, live: live, wake: trigger.New(), peers: map[Peer]*condition{}}
}

// of returns the condition of a process. h.mu must be held.
func (h *health) of(p *Peer) *condition {
	c := h.peers[*p]
	if c == nil {
		c = &condition{waiting: map[*waiter]struct{}{}}
		h.peers[*p] = c
	}
	return c
}

// lost returns why a process is not to be asked, nil if it is.
func (h *health) lost(p *Peer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.peers[*p]; c != nil {
		return c.lost
	}
	return nil
}

// wait begins to wait for the first byte of a process, which stop ends. lose is called if the process is found not to answer.
func (h *health) wait(p *Peer, lose func(error)) (stop func()) {
	w := &waiter{lose}
	h.mu.Lock()
	h.of(p).waiting[w] = struct{}{}
	h.mu.Unlock()
	late := time.AfterFunc(suspectAfter, func() { h.suspect(p) })
	return func() {
		late.Stop()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.of(p).waiting, w)
		h.tidy(p)
	}
}

// suspect has a process asked whether it answers at all.
func (h *health) suspect(p *Peer) {
	h.mu.Lock()
	h.of(p).suspect = true
	h.mu.Unlock()
	h.wake.Fire()
}

// tidy forgets a process about which there is nothing to know. h.mu must be held.
func (h *health) tidy(p *Peer) {
	if c := h.peers[*p]; c != nil && c.lost == nil && !c.suspect && !c.asking && len(c.waiting) == 0 {
		delete(h.peers, *p)
	}
}

// run asks suspects until ctx ends.
func (h *health) run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		for _, p := range h.due() {
			asking.Go(func() { h.ask(ctx, &p) })
		}
		select {
		case <-h.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// due returns the processes that are to be asked, and forgets those that are none of the fleet's any more.
func (h *health) due() (due []Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.peers) == 0 {
		return nil
	}
	live := map[Peer]bool{}
	for _, p := range h.live() {
		live[p] = true
	}
	for p, c := range h.peers {
		switch {
		case c.asking:
		case !live[p]:
			c.suspect, c.lost = false, nil
			h.tidy(&p)
		case c.suspect || c.lost != nil:
			c.asking = true
			due = append(due, p)
		}
	}
	return due
}

// ask asks a process whether it answers.
func (h *health) ask(ctx context.Context, p *Peer) {
	began := time.Now()
	err := alive(ctx, p)
	// Who runs late itself has not waited for as long as it seems.
	late := time.Since(began) > aliveTimeout+aliveTimeout/4
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.of(p)
	c.asking = false
	defer h.tidy(p)
	switch was := c.lost; {
	case ctx.Err() != nil || err != nil && late:
	case err != nil:
		if c.suspect, c.lost = false, err; was == nil {
			h.log.Warn("query API: a process does not answer: it is not asked until it does", "process", p.ID, "error", err)
		}
		for w := range c.waiting {
			w.lose(c.lost)
		}
	default:
		if c.suspect, c.lost = false, nil; was != nil {
			h.log.Info("query API: a process answers again", "process", p.ID)
		}
	}
}

// alive returns why a process does not answer. Whatever it answers, it does.
func alive(ctx context.Context, p *Peer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, aliveTimeout, errors.New("it does not say that it lives"))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.URL, "/")+alivePath, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := p.Client.Do(r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxRefusal)) // so that the connection can be used again
	return resp.Body.Close()
}

// patientReader reads what a process sends, and gives up once that is found not to answer: who has begun may be lost, too.
type patientReader struct {
	io.Reader
	health *health
	peer   *Peer
	lose   func(error) // ends the reading
}

// Read implements io.Reader.
func (p *patientReader) Read(b []byte) (int, error) {
	defer p.health.wait(p.peer, p.lose)()
	return p.Reader.Read(b)
}

// patient is a transport to a process that gives up once that is found not to answer.
type patient struct {
	next   http.RoundTripper
	health *health
	peer   *Peer
}

// RoundTrip implements http.RoundTripper. What it adds to the context ends with that of the request.
func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, lose := context.WithCancelCause(r.Context())
	stop := p.health.wait(p.peer, lose)
	resp, err := p.next.RoundTrip(r.WithContext(ctx))
	stop()
	if err == nil || r.Context().Err() != nil {
		return resp, err
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	lose(nil)
	p.health.suspect(p.peer)
	return nil, err
}
