package persistence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"federator.dev/federator/pkg/aggregate"
)

// segments writes segments beside the writer, one at a time.
type segments struct {
	store   *Store
	index   *aggregate.Index
	ctx     context.Context
	running sync.WaitGroup
	member  string // of the one that is being written; "" for none
	room    int64  // bytes that it may need
	cancel  context.CancelFunc
	done    chan segmentDone
}

type segmentDone struct {
	member string
	number uint64
	size   int64
	err    error
}

func (s *segments) start(ctx context.Context, store *Store, x *aggregate.Index) {
	s.ctx, s.store, s.index, s.done = ctx, store, x, make(chan segmentDone, 1)
}

// write begins to write a segment.
func (s *segments) write(member string, number uint64, snap *aggregate.Snapshot) {
	ctx, cancel := context.WithCancel(s.ctx)
	s.member, s.cancel = member, cancel
	s.running.Go(func() {
		defer cancel()
		size, _, err := s.store.writeSegment(ctx, s.index, member, number, snap, true)
		s.done <- segmentDone{member, number, size, err}
	})
}

// forget ends the writing of a member's segment, and returns once it has ended.
func (s *segments) forget(member string) {
	if s.member != member {
		return
	}
	s.stop()
}

func (s *segments) stop() {
	if s.member == "" {
		return
	}
	s.cancel()
	s.running.Wait()
	<-s.done
	s.member = ""
}

// isLong reports whether a member's logs are to be replaced by a segment.
func (m *memberLog) isLong() bool {
	return m.logged+m.log.Size() > max(compactBytes, m.base/2) || m.logs >= compactLogs
}

// compact begins to write a segment of a member whose logs have become long.
func (w *writer) compact() error {
	if w.segments.member != "" {
		return nil
	}
	for name := range w.long {
		delete(w.long, name)
		m := w.logs[name]
		if m == nil || !m.isLong() {
			continue
		}
		if need := m.base + m.logged + m.seen; need <= w.room { // both are there for a while
			w.segments.room = need
			return w.beginSegment(m)
		}
	}
	return nil
}

// beginSegment has a member's next commits written to another log, and what there is until then
// to a segment of the same number.
func (w *writer) beginSegment(m *memberLog) error {
	if err := w.nextLog(m, false); err != nil {
		return err
	}
	w.ends.change(m.name, end{m.number, m.seen})
	if err := w.ends.write(w.last.Revision()); err != nil {
		return err
	}
	w.segments.write(m.name, m.number, w.last)
	return nil
}

// nextLog goes on with another log, which may need the segment of its number.
func (w *writer) nextLog(m *memberLog, needs bool) error {
	f, err := newLog(w.store.opts.Directory, w.store.opts.Key, header{Member: m.name, Number: m.number + 1, Follows: m.seen, Needs: needs})
	if err != nil {
		return err
	}
	w.syncer.close(m.log)
	m.logged, m.logs = m.logged+m.seen, m.logs+1
	m.log, m.number, m.seen = f, m.number+1, f.Written()
	return nil
}

// compacted takes the end of a segment: what is before it is of no use any more.
func (w *writer) compacted(d segmentDone) error {
	w.segments.member = ""
	if d.err != nil {
		return fmt.Errorf("segment of member %q: %w", d.member, d.err)
	}
	m := w.logs[d.member]
	if m == nil {
		return nil
	}
	m.base, m.logged, m.logs = d.size, 0, int(m.number-d.number)
	return removeBefore(m.dir, d.number)
}

// removeBefore removes a member's files below a number.
func removeBefore(dir string, number uint64) (err error) {
	files, err := listMember(dir)
	for _, n := range files.segments {
		if n < number {
			err = errors.Join(err, os.Remove(filepath.Join(dir, fileName(n, segmentType))))
		}
	}
	for _, n := range files.logs {
		if n < number {
			err = errors.Join(err, os.Remove(filepath.Join(dir, fileName(n, logType))))
		}
	}
	return err
}
