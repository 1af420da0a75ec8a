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

	longBatch    = 8 << 20  // bytes of a batch from which on it may be too long
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
	ends  endsFile
	left  map[string]uint64   // numbers of the last logs of members that have left within the batch
	last  *aggregate.Snapshot // that is written
	dirty []*memberLog        // of the batch
	long  map[string]bool     // members that may be compacted
	room  int64               // bytes that may be written before what is on disk is counted again

	segments segments
	syncer   syncer
}

var errEnded = errors.New("what was kept was not loaded, and stays as it is")

// Run writes what is committed to an index that was made with Options.Hold, until ctx is done,
// and then what was committed before. Load must have been called. It returns when nothing of it
// runs any more. Readers never wait for it for much more than a second.
func (s *Store) Run(ctx context.Context, x *aggregate.Index) error {
	if !s.ready {
		return errors.New("persistence: Run before Load")
	}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(x, stop) })
	defer watching.Wait()
	defer close(stop)
	if s.ended {
		s.health.failed(errEnded)
		return s.releasing(x, func() error { <-ctx.Done(); return nil })
	}
	for delay := time.Duration(0); ; {
		began, err := s.write(ctx, x)
		if ctx.Err() != nil {
			return err
		}
		if !began.IsZero() && time.Since(began) > soundAfter {
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

// write writes until ctx is done or something fails. It returns when all that there was had been
// written; zero: it never had.
func (s *Store) write(ctx context.Context, x *aggregate.Index) (began time.Time, err error) {
	w := &writer{store: s, index: x, logs: map[string]*memberLog{}, long: map[string]bool{}, left: map[string]uint64{}, last: x.Snapshot()}
	w.ends = endsFile{store: s, all: map[string]end{}}
	defer w.close()
	w.syncer.start()
	if s.loaded != nil {
		err = w.begin(ctx)
	} else { // all is rewritten, which takes a while
		err = s.releasing(x, func() error { return w.begin(ctx) })
	}
	if err != nil {
		return time.Time{}, err
	}
	s.health.sound()
	return time.Now(), w.follow(ctx)
}

// follow writes what is committed until ctx is done.
func (w *writer) follow(ctx context.Context) error {
	progress := time.NewTicker(progressInterval)
	defer progress.Stop()
	for {
		pending, more := w.index.Pending(w.last)
		if err := w.batch(ctx, pending, false); err != nil {
			return err
		}
		if err := w.compact(); err != nil {
			return err
		}
		select {
		case <-more:
		case <-progress.C:
			if err := errors.Join(w.progress(ctx), w.count()); err != nil {
				return err
			}
		case err := <-w.syncer.failed:
			return err
		case done := <-w.segments.done:
			if err := w.compacted(done); err != nil && ctx.Err() == nil {
				return err
			}
		case <-ctx.Done():
			ctx := context.WithoutCancel(ctx)
			return errors.Join(w.progress(ctx), w.syncer.drain())
		}
	}
}

// batch writes what is pending, and then shows it.
func (w *writer) batch(ctx context.Context, p aggregate.Pending, progress bool) error {
	after := p.Snapshot()
	if after == w.last && !progress {
		return nil
	}
	if w.store.opts.Ahead != nil {
		w.store.opts.Ahead(ctx, after.Revision())
	}
	if err := w.collect(p); err != nil {
		return err
	}
	if progress {
		w.noteProgress(after)
	}
	if err := w.flush(ctx, after); err != nil {
		return err
	}
	if err := w.ends.write(after.Revision()); err != nil {
		return err
	}
	w.removeLeft()
	w.last = after
	p.Release()
	w.store.health.caughtUp()
	return nil
}

// collect adds what is pending to the batch. Of what the change log has lost a segment is written.
func (w *writer) collect(p aggregate.Pending) error {
	commits, ok := p.Commits()
	if !ok {
		return w.compare(p.Snapshot())
	}
	for c := range commits {
		if c.Left {
			w.leave(c.Member)
			continue
		}
		m, err := w.dirtyLog(c.Member)
		if err != nil {
			return err
		}
		m.commit(&c)
	}
	return nil
}

// compare has segments written of all members that differ from what is written.
func (w *writer) compare(after *aggregate.Snapshot) error {
	for name := range w.logs {
		if _, is := after.Member(name); !is {
			w.leave(name)
		}
	}
	for known := range after.Members() {
		if w.logs[known.Name] != nil && after.SameMember(known.Name, w.last) {
			continue
		}
		m, err := w.dirtyLog(known.Name)
		if err != nil {
			return err
		}
		m.abandon()
	}
	return nil
}

// dirtyLog is log, of a member that the batch has something of.
func (w *writer) dirtyLog(member string) (*memberLog, error) {
	m, err := w.log(member)
	if err == nil && !m.unwritten {
		w.dirty = append(w.dirty, m)
	}
	return m, err
}

// log returns the log of a member, which it begins for one that is new.
func (w *writer) log(member string) (*memberLog, error) {
	if m := w.logs[member]; m != nil {
		return m, nil
	}
	root := w.store.opts.Directory
	number := w.left[member] + 1
	if number == 1 { // what may be there is nobody's
		if err := os.RemoveAll(memberDir(root, member)); err != nil {
			return nil, err
		}
	}
	return w.newLog(header{Member: member, Number: number, Begins: true})
}

func (w *writer) newLog(h header) (*memberLog, error) {
	f, err := newLog(w.store.opts.Directory, w.store.opts.Key, h)
	if err != nil {
		return nil, err
	}
	m := newMemberLog(w.store.opts.Directory, h.Member, h.Number, f)
	w.logs[h.Member] = m
	return m, nil
}

// leave ends the log of a member that has left. Its files are removed once that is written: those who
// have seen them are told that it has left, or to list again.
func (w *writer) leave(member string) {
	m := w.logs[member]
	if m == nil {
		return
	}
	w.syncer.close(m.log)
	m.reset()
	delete(w.logs, member)
	w.segments.forget(member)
	w.left[member] = m.number
	w.ends.change(member, end{})
}

// removeLeft removes the files of members that have left.
func (w *writer) removeLeft() {
	for name := range w.left {
		dir := memberDir(w.store.opts.Directory, name)
		var err error
		if m := w.logs[name]; m != nil { // another one has its name
			err = removeBefore(dir, m.number)
		} else {
			err = os.RemoveAll(dir)
		}
		if err != nil {
			w.store.opts.Log.Warn("removing what was kept of a member that has left failed", "member", name, "error", err)
		}
	}
	clear(w.left)
}

// flush writes the batch.
func (w *writer) flush(ctx context.Context, after *aggregate.Snapshot) error {
	defer func() { w.dirty = w.dirty[:0] }()
	for _, m := range w.dirty {
		if w.logs[m.name] != m {
			continue // it has left
		}
		write := w.flushLog
		if m.anew {
			write = w.rewrite
		}
		if err := write(ctx, m, after); err != nil {
			return fmt.Errorf("member %q: %w", m.name, err)
		}
		m.seen = m.log.Written()
		w.ends.change(m.name, end{m.number, m.seen})
	}
	if w.room < 0 {
		return w.count()
	}
	return nil
}

func (w *writer) flushLog(_ context.Context, m *memberLog, after *aggregate.Snapshot) error {
	for e := range m.allEncoders() {
		if err := w.store.saveDictionaries(e); err != nil {
			return err
		}
	}
	if err := m.end(after, w.store.opts.Form); err != nil {
		return err
	}
	if err := m.log.Flush(); err != nil {
		return err
	}
	w.room -= m.log.Written() - m.seen
	w.syncer.written(m.log)
	if m.isLong() {
		w.long[m.name] = true
	}
	return nil
}

// rewrite writes a segment of what there is of a member now, in place of the batch.
func (w *writer) rewrite(ctx context.Context, m *memberLog, after *aggregate.Snapshot) error {
	w.segments.forget(m.name)
	m.reset()
	if err := w.count(); err != nil {
		return err
	}
	if need := m.base + m.logged; need > w.room { // both are there until ends says so
		return &FullError{w.store.opts.MaxBytes - w.room + need, w.store.opts.MaxBytes}
	}
	if err := w.nextLog(m, true); err != nil {
		return err
	}
	if err := w.writeAll(ctx, m, after); err != nil {
		return err
	}
	w.room -= m.base
	return nil
}

// writeAll writes the segment that a log needs. What is before it is of no use once ends says so.
func (w *writer) writeAll(ctx context.Context, m *memberLog, snap *aggregate.Snapshot) error {
	size, reached, err := w.store.writeSegment(ctx, w.index, m.name, m.number, snap, false)
	if err != nil {
		return err
	}
	m.base, m.logged, m.logs = size, 0, 0
	clear(m.recorded)
	m.noteAll(reached)
	w.left[m.name] = m.number
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
	if w.ends.file != nil {
		bytes += w.ends.file.Written()
	}
	if w.segments.member != "" {
		bytes += w.segments.room
	}
	for _, m := range w.logs {
		bytes += m.base + m.logged + m.log.Written()
	}
	w.store.health.counted(bytes)
	if w.room = w.store.opts.MaxBytes - bytes; w.room < 0 {
		return &FullError{bytes, w.store.opts.MaxBytes}
	}
	return nil
}

// progress writes how far scopes were read without a change.
func (w *writer) progress(ctx context.Context) error {
	p, _ := w.index.Pending(w.last)
	return w.batch(ctx, p, true)
}

func (w *writer) noteProgress(after *aggregate.Snapshot) {
	for _, m := range w.logs {
		was := m.unwritten
		if m.progress(after); m.unwritten && !was {
			w.dirty = append(w.dirty, m)
		}
	}
}

func (w *writer) close() {
	w.segments.stop()
	w.syncer.stop()
	for _, m := range w.logs {
		m.log.Close()
	}
	w.ends.close()
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
