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
	mu     sync.Mutex
	status Status
}

// Status returns how persistence is.
func (s *Store) Status() Status {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.status
}

func (h *health) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.status.Error == "" {
		h.status.Since = time.Now()
	}
	h.status.Error = err.Error()
}

func (h *health) sound() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Error, h.status.Since = "", time.Now()
}

func (h *health) counted(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Bytes = bytes
}

func (h *health) slow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Slow++
}
