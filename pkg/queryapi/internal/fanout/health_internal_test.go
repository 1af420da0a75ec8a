package fanout

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// process answers, or does not, in virtual time.
type process struct {
	silent, refuses atomic.Bool
	asked, under    atomic.Int64
	most            atomic.Int64 // under way at once
}

func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	p.asked.Add(1)
	p.most.Store(max(p.most.Load(), p.under.Add(1))) // one at a time in virtual time
	defer p.under.Add(-1)
	switch {
	case p.refuses.Load():
		return nil, syscall.ECONNREFUSED
	case p.silent.Load():
		<-r.Context().Done()
		return nil, r.Context().Err()
	case r.URL.Path != alivePath:
		time.Sleep(10 * time.Second) // a large answer
	}
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// lines is what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func withHealth(t *testing.T, test func(t *testing.T, h *health, p *process, peer *Peer, log *lines, live *atomic.Pointer[Peer])) {
	synctest.Test(t, func(t *testing.T) {
		p, log := &process{}, &lines{}
		peer := &Peer{ID: "b", Epoch: 1, URL: "https://b", Client: &http.Client{Transport: p}}
		var live atomic.Pointer[Peer]
		live.Store(peer)
		h := newHealth(slog.New(slog.NewTextHandler(log, nil)), func() []Peer { return []Peer{*live.Load()} })
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.run(ctx) })
		test(t, h, p, peer, log, &live)
		cancel()
		running.Wait()
	})
}

// get asks a process as Forward does, and returns how long that took.
func get(t *testing.T, h *health, peer *Peer) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	if err := h.lost(peer); err != nil {
		return time.Since(began), err
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, peer.URL+"/members/a/b/api/v1/pods", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := patient{peer.Client.Transport, h, peer}.RoundTrip(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return time.Since(began), err
}

// TestHealth_OneRequestWaitsForASilentProcess: the others know; it is asked seldom, and is well as soon as it answers.
func TestHealth_OneRequestWaitsForASilentProcess(t *testing.T) {
	withHealth(t, func(t *testing.T, h *health, p *process, peer *Peer, log *lines, live *atomic.Pointer[Peer]) {
		p.silent.Store(true)
		var first sync.WaitGroup
		for range 50 {
			first.Go(func() {
				if took, err := get(t, h, peer); err == nil || took > 3100*time.Millisecond {
					t.Errorf("the first: %v after %v", err, took)
				}
			})
		}
		first.Wait()
		p.asked.Store(0)
		p.most.Store(0)
		for range 1000 {
			if took, err := get(t, h, peer); err == nil || took > 0 {
				t.Fatalf("another one: %v after %v", err, took)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if asked, most := p.asked.Load(), p.most.Load(); asked > 6 || most > 1 {
			t.Errorf("in ten seconds it was asked %d times, %d of them at once", asked, most)
		}
		p.silent.Store(false)
		time.Sleep(3 * time.Second)
		if took, err := get(t, h, peer); err != nil || took != 10*time.Second {
			t.Errorf("it answers again: %v after %v", err, took)
		}
		if log.count("level=WARN") != 1 || log.count("level=INFO") != 1 {
			t.Errorf("it is said more than once: %s", log.text.String())
		}
		if len(h.peers) != 0 {
			t.Errorf("what is well is remembered: %d", len(h.peers))
		}
	})
}

// TestHealth_ALargeAnswerIsWaitedFor: only who does not answer anything is lost.
func TestHealth_ALargeAnswerIsWaitedFor(t *testing.T) {
	withHealth(t, func(t *testing.T, h *health, p *process, peer *Peer, log *lines, live *atomic.Pointer[Peer]) {
		for range 3 {
			if took, err := get(t, h, peer); err != nil || took != 10*time.Second {
				t.Errorf("%v after %v", err, took)
			}
		}
		if n := log.count("level="); n != 0 || p.asked.Load() > 6 {
			t.Errorf("%d lines, asked %d times", n, p.asked.Load())
		}
	})
}

// TestHealth_OneThatRefusesIsLostAtOnce, and one that has started again is another.
func TestHealth_OneThatRefusesIsLostAtOnce(t *testing.T) {
	withHealth(t, func(t *testing.T, h *health, p *process, peer *Peer, log *lines, live *atomic.Pointer[Peer]) {
		p.refuses.Store(true)
		if took, err := get(t, h, peer); !errors.Is(err, syscall.ECONNREFUSED) || took > 0 {
			t.Errorf("%v after %v", err, took)
		}
		synctest.Wait()
		if h.lost(peer) == nil {
			t.Error("it is not known")
		}
		time.Sleep(20 * time.Second)
		if log.count("level=WARN") != 1 {
			t.Errorf("it is said %d times", log.count("level=WARN"))
		}
		again := *peer
		again.Epoch++
		if err := h.lost(&again); err != nil {
			t.Errorf("the one that has started again is lost, too: %v", err)
		}
		live.Store(&again)
		time.Sleep(time.Second)
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.peers) != 0 {
			t.Error("the former one is remembered")
		}
	})
}
