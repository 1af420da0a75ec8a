package persistence

import (
	"sync"
	"time"
)

// Status says how persistence is.
type Status struct {
	Error string    // why nothing is written; "" while it is
	Since time.Time // when that began
	Slow  uint64    // how often readers did not wait for the disk
	Bytes int64     // on disk, as last counted
}

type health struct {
	onChange func(why string)
	telling  sync.Mutex // held while onChange is called, before mu

	mu        sync.Mutex
	status    Status
	slowSince time.Time // when readers began not to wait; zero: they wait
	stalled   bool      // Error is of that
	told      string    // to onChange
}

// Status returns how persistence is.
func (s *Store) Status() Status {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.status
}

// change changes the status, and tells it where it is another one.
func (h *health) change(f func()) {
	h.telling.Lock()
	defer h.telling.Unlock()
	h.mu.Lock()
	f()
	why := h.status.Error
	tell := h.onChange != nil && (why == "") != (h.told == "")
	h.told = why
	h.mu.Unlock()
	if tell {
		h.onChange(why)
	}
}

func (h *health) failed(err error) {
	h.change(func() {
		if h.status.Error == "" {
			h.status.Since = time.Now()
		}
		h.status.Error, h.stalled = err.Error(), false
	})
}

func (h *health) sound() {
	h.change(func() { h.status.Error, h.status.Since = "", time.Now() })
}

func (h *health) counted(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Bytes = bytes
}

// slow takes note that readers did not wait for the disk, once until it has caught up.
func (h *health) slow() {
	h.change(func() {
		switch {
		case h.status.Error != "":
		case h.slowSince.IsZero():
			h.slowSince = time.Now()
			h.status.Slow++
		case time.Since(h.slowSince) >= stalledAfter:
			h.status.Error, h.status.Since, h.stalled = errStalled.Error(), h.slowSince, true
		}
	})
}

// caughtUp takes note that all was written that there was.
func (h *health) caughtUp() {
	h.change(func() {
		if h.stalled {
			h.status.Error, h.status.Since = "", time.Now()
		}
		h.slowSince, h.stalled = time.Time{}, false
	})
}
