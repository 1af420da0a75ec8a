package persistence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// Intervals and bounds of writing.
const (
	progressInterval = 10 * time.Second // of how far scopes were read without a change
	syncInterval     = time.Second
	patience         = time.Second      // after which readers do not wait for the disk any more
	minRetry         = 10 * time.Second // of beginning anew after a failure, doubled with each
	maxRetry         = 30 * time.Minute
	soundAfter       = 5 * time.Minute // without a failure

	compactBytes = 1 << 20  // of logs, below which a member is not compacted
	compactLogs  = 8        // logs of a member after which it is compacted
	compactRate  = 32 << 20 // bytes a second of segments
	compactBurst = 4 << 20
)

// writer writes the commits of an index, in their order, and shows them to readers afterwards. It
// belongs to one goroutine.
type writer struct {
	store *Store
	index *aggregate.Index
	logs  map[string]*memberLog
	tip   *os.File
	last  *aggregate.Snapshot // that is written
	dirty []*memberLog        // of the batch
	long  map[string]bool     // members that may be compacted
	room  int64               // bytes that may be written before what is on disk is counted again

	segments segments
	syncer   syncer
}

// Run writes what is committed to an index that was made with Options.Hold, until ctx is done,
// and then what was committed before. Load must have been called. It returns when nothing of it
// runs any more.
func (s *Store) Run(ctx context.Context, x *aggregate.Index) error {
	if !s.ready {
		return errors.New("persistence: Run before Load")
	}
	for delay := time.Duration(0); ; {
		began := time.Now()
		err := s.write(ctx, x)
		if ctx.Err() != nil {
			return err
		}
		if time.Since(began) > soundAfter {
			delay = 0
		}
		delay = min(max(2*delay, minRetry), maxRetry)
		s.opts.Log.Error("persistence has stopped, and begins anew later", "error", err, "after", delay)
		s.health.failed(err)
		err = s.releasing(x, func() error { return sleep(ctx, delay) })
		if err != nil {
			return nil
		}
	}
}

// release shows readers what is committed, without writing it, until stop is closed.
func release(x *aggregate.Index, stop <-chan struct{}) {
	for last := x.Snapshot(); ; {
		pending, more := x.Pending(last)
		pending.Release()
		last = pending.Snapshot()
		select {
		case <-more:
		case <-stop:
			return
		}
	}
}

// releasing does what takes long without readers waiting for it.
func (s *Store) releasing(x *aggregate.Index, f func() error) error {
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { release(x, stop) })
	defer running.Wait()
	defer close(stop)
	return f()
}

// write writes until ctx is done or something fails.
func (s *Store) write(ctx context.Context, x *aggregate.Index) (err error) {
	w := &writer{store: s, index: x, logs: map[string]*memberLog{}, long: map[string]bool{}, last: x.Snapshot()}
	defer w.close()
	w.syncer.start(s.opts.Log)
	if s.loaded != nil {
		err = w.begin(ctx)
	} else { // all is written anew, which takes a while
		err = s.releasing(x, func() error { return w.begin(ctx) })
	}
	if err != nil {
		return err
	}
	s.health.sound()
	progress := time.NewTicker(progressInterval)
	defer progress.Stop()
	for {
		pending, more := x.Pending(w.last)
		if err := w.batch(pending, false); err != nil {
			return err
		}
		if err := w.compact(); err != nil {
			return err
		}
		select {
		case <-more:
		case <-progress.C:
			if err := errors.Join(w.progress(), w.count()); err != nil {
				return err
			}
		case done := <-w.segments.done:
			if err := w.compacted(done); err != nil {
				return err
			}
		case <-ctx.Done():
			pending, _ := x.Pending(w.last)
			return errors.Join(w.batch(pending, true), w.sync())
		}
	}
}

// batch writes what is pending, and then shows it.
func (w *writer) batch(p aggregate.Pending, progress bool) error {
	after := p.Snapshot()
	if after == w.last && !progress {
		return nil
	}
	commits, ok := p.Commits()
	if !ok {
		return errLogCut
	}
	waiting := w.store.impatient(p)
	defer waiting.Stop()
	for c := range commits {
		if err := w.commit(&c, after); err != nil {
			return err
		}
	}
	if progress {
		w.noteProgress(after)
	}
	if err := w.flush(after); err != nil {
		return err
	}
	if _, err := w.tip.WriteAt(appendTip(nil, after.Revision()), 0); err != nil {
		return err
	}
	w.last = after
	p.Release()
	return nil
}

// errLogCut is of commits that came so fast that the change log did not keep them: all is
// written anew.
var errLogCut = errors.New("the change log has lost what was not written yet")

// impatient shows readers what is pending once the disk has not taken it for a while. After a
// restart they list again: the tip does not say that they have seen it.
func (s *Store) impatient(p aggregate.Pending) *time.Timer {
	return time.AfterFunc(patience, func() {
		s.health.slow()
		p.Release()
	})
}

func (w *writer) commit(c *aggregate.Commit, after *aggregate.Snapshot) error {
	if c.Left {
		return w.leave(c.Member)
	}
	m, err := w.log(c.Member)
	if err != nil {
		return err
	}
	if !m.unwritten {
		w.dirty = append(w.dirty, m)
	}
	m.commit(c)
	return nil
}

// log returns the log of a member, which it begins for one that is new.
func (w *writer) log(member string) (*memberLog, error) {
	if m := w.logs[member]; m != nil {
		return m, nil
	}
	f, err := newLog(w.store.opts.Directory, w.store.opts.Key, member, 1, 0)
	if err != nil {
		return nil, err
	}
	m := newMemberLog(w.store.opts.Directory, member, 1, f)
	w.logs[member] = m
	return m, nil
}

// leave removes what there is of a member.
func (w *writer) leave(member string) error {
	if m := w.logs[member]; m != nil {
		w.syncer.close(m.log)
		m.reset()
		delete(w.logs, member)
	}
	w.segments.forget(member)
	return os.RemoveAll(memberDir(w.store.opts.Directory, member))
}

func (w *writer) flush(after *aggregate.Snapshot) error {
	defer func() { w.dirty = w.dirty[:0] }()
	for _, m := range w.dirty {
		if w.logs[m.name] != m {
			continue // it has left
		}
		for e := range m.allEncoders() {
			if err := w.store.saveDictionaries(e); err != nil {
				return err
			}
		}
		if err := m.end(after, w.store.opts.Form); err != nil {
			return err
		}
		before := m.log.offset
		if err := m.log.flush(); err != nil {
			return fmt.Errorf("member %q: %w", m.name, err)
		}
		w.room -= m.log.offset - before
		w.syncer.written(m.log)
		if m.isLong() {
			w.long[m.name] = true
		}
	}
	if w.room < 0 {
		return w.count()
	}
	return nil
}

// FullError is of an index that needs more room on disk than it may have.
type FullError struct{ Bytes, MaxBytes int64 }

func (e *FullError) Error() string {
	return fmt.Sprintf("%d bytes are on disk, at most %d may be (persistence.maxBytes)", e.Bytes, e.MaxBytes)
}

// count counts what is on disk.
func (w *writer) count() error {
	bytes := w.store.dictionaryBytes()
	for _, m := range w.logs {
		bytes += m.base + m.logged + m.log.offset
	}
	w.store.health.counted(bytes)
	if w.room = w.store.opts.MaxBytes - bytes; w.room < 0 {
		return &FullError{bytes, w.store.opts.MaxBytes}
	}
	return nil
}

// progress writes how far scopes were read without a change.
func (w *writer) progress() error {
	p, _ := w.index.Pending(w.last)
	return w.batch(p, true)
}

func (w *writer) noteProgress(after *aggregate.Snapshot) {
	for _, m := range w.logs {
		was := m.unwritten
		if m.progress(after); m.unwritten && !was {
			w.dirty = append(w.dirty, m)
		}
	}
}

// sync makes what was written survive a loss of power.
func (w *writer) sync() (err error) {
	for _, m := range w.logs {
		err = errors.Join(err, m.log.f.Sync())
	}
	return errors.Join(err, w.tip.Sync())
}

func (w *writer) close() {
	w.segments.stop()
	w.syncer.stop()
	for _, m := range w.logs {
		m.log.close()
	}
	if w.tip != nil {
		w.tip.Close()
	}
}

// sleep waits, and returns the context's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// throttle waits until so many bytes of a segment may be written.
func (s *Store) throttle(ctx context.Context, bytes int) error {
	for bytes > 0 {
		n := min(bytes, s.compaction.Burst())
		if err := s.compaction.WaitN(ctx, n); err != nil {
			return err
		}
		bytes -= n
	}
	return nil
}
