package persistence

import (
	"fmt"
	"sync"
	"time"

	"federator.dev/federator/internal/frames"
)

// maxSyncs bounds how many logs are made to survive a loss of power in one syncInterval: of a large
// fleet each has its turn.
const maxSyncs = 32

// syncer makes what was written to logs survive a loss of power, beside the writer, which does not
// wait for it: what is lost with the power is read from the members again.
type syncer struct {
	failed  chan error // the first error
	running sync.WaitGroup
	ended   chan struct{}

	mu      sync.Mutex
	dirty   []*frames.File        // in the order in which they were written
	is      map[*frames.File]bool // whether they are among them
	busy    *frames.File          // that is being synced
	closing map[*frames.File]bool // that are to be closed once they are synced
}

func (s *syncer) start() {
	s.failed, s.ended, s.is, s.closing = make(chan error, 1), make(chan struct{}), map[*frames.File]bool{}, map[*frames.File]bool{}
	ended := s.ended
	s.running.Go(func() {
		tick := time.NewTicker(syncInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				for n := 0; n < maxSyncs && s.next(); n++ {
				}
			case <-ended:
				return
			}
		}
	})
}

// written takes note of a log that was written.
func (s *syncer) written(f *frames.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.is[f] {
		s.is[f] = true
		s.dirty = append(s.dirty, f)
	}
}

// close closes a log that is not written any more, once it is synced.
func (s *syncer) close(f *frames.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is[f] || s.busy == f {
		s.closing[f] = true
		return
	}
	f.Close()
}

// next syncs the log that waits for the longest time. It reports false where none does.
func (s *syncer) next() bool {
	s.mu.Lock()
	if len(s.dirty) == 0 {
		s.mu.Unlock()
		return false
	}
	f := s.dirty[0]
	s.dirty[0] = nil
	s.dirty = s.dirty[1:]
	delete(s.is, f)
	s.busy = f
	s.mu.Unlock()
	if err := f.Sync(); err != nil {
		select {
		case s.failed <- fmt.Errorf("syncing %s: %w", f.File().Name(), err): // what it has may be lost
		default:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy = nil; s.closing[f] && !s.is[f] {
		delete(s.closing, f)
		f.Close()
	}
	return true
}

// drain syncs all that was written.
func (s *syncer) drain() error {
	s.end()
	for s.next() {
	}
	select {
	case err := <-s.failed:
		return err
	default:
		return nil
	}
}

// end ends the syncer's goroutine.
func (s *syncer) end() {
	if s.ended != nil {
		close(s.ended)
		s.running.Wait()
		s.ended = nil
	}
}

// stop ends the syncer, and closes what it was to close.
func (s *syncer) stop() {
	s.end()
	for f := range s.closing {
		f.Close()
	}
}
