package segments

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// Append appends entries in their order, and sets their positions and times. It returns the position
// of the last one. A batch is one write, but where it fills a segment. With an error, last is the
// position of the last entry that is in the log, which may be one of the batch: those that are in it
// have a position. The next Append begins a new segment.
//
// The error is ErrTooLarge, ErrFull, ErrClosed, or of the disk.
func (l *Log) Append(entries []Entry) (last uint64, err error) {
	if err := check(entries); err != nil {
		return l.lastPosition(), err
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	for i := range entries {
		entries[i].Position = 0
	}
	now := l.opts.Now().UnixMilli()
	for len(entries) > 0 && err == nil {
		var n int
		if n, err = l.appendSome(entries, now); errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		entries = entries[n:]
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("segments: appending: %w", err)
	}
	return l.lastPosition(), err
}

func (l *Log) lastPosition() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.Position
}

// check checks that entries are within the bounds.
func check(entries []Entry) error {
	bytes := 0
	for i := range entries {
		e := &entries[i]
		s := subjectOf(e)
		for f, value := range s {
			if len(value) > MaxFacet {
				return fmt.Errorf("entry %d of the batch: facet %d of %d bytes: %w", i, f, len(value), ErrTooLarge)
			}
		}
		if len(e.Payload) > MaxPayload {
			return fmt.Errorf("entry %d of the batch: payload of %d bytes: %w", i, len(e.Payload), ErrTooLarge)
		}
		if bytes += len(e.Payload) + s.bytes() + rowBytes; bytes > MaxBatch {
			return fmt.Errorf("a batch of more than %d bytes: %w", MaxBatch, ErrTooLarge)
		}
	}
	return nil
}

// hasRoom reports whether a segment may be appended to.
func (l *Log) hasRoom(s *segment) bool {
	return s.content < l.opts.SegmentBytes && s.last+1 < s.first+maxPositions
}

// appendSome appends as many entries as the active segment has room for, and returns how many.
func (l *Log) appendSome(entries []Entry, now int64) (n int, err error) {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return 0, ErrClosed
	}
	if l.active == nil || !l.hasRoom(l.active) {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	added, content, n := l.encode(entries, now)
	l.expireFor(int64(l.out.Buffered()))
	if err := l.out.Flush(); err != nil {
		l.abandon(n)
		return 0, err
	}
	l.publish(added, content, Mark{l.next + uint64(n) - 1, timeOf(now)})
	for i := range entries[:n] {
		entries[i].Position, entries[i].Time = l.next+uint64(i), time.UnixMilli(now).UTC()
	}
	l.next += uint64(n)
	return n, nil
}

// encode adds frames of entries to what is written next, up to the end of the active segment.
func (l *Log) encode(entries []Entry, now int64) (added []chunk, content int64, n int) {
	w := &l.block
	w.reset()
	from := l.next
	flush := func() {
		at := l.out.Size()
		c := chunk{offset: at, first: from, last: from + uint64(len(w.rows)) - 1, since: now, until: now, subjects: make([][numFacets]uint32, len(w.subjects))}
		for i := range w.subjects {
			c.subjects[i] = w.subjects[i].hashes()
		}
		l.out.Add(typeEntries, from, w.append(nil))
		c.size = uint32(l.out.Size() - at)
		added, content, from = append(added, c), content+int64(w.bytes), c.last+1
		w.reset()
	}
	s := l.active
	for n < len(entries) && s.content+content+int64(w.bytes) < l.opts.SegmentBytes && l.next+uint64(n) < s.first+maxPositions {
		e := &entries[n]
		about := subjectOf(e)
		w.add(&about, row{position: l.next + uint64(n), time: now, revision: e.Revision, payload: e.Payload})
		if n++; w.full() {
			flush()
		}
	}
	if len(w.rows) > 0 {
		flush()
	}
	return added, content, n
}

// publish shows readers what was written.
func (l *Log) publish(added []chunk, content int64, last Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range added {
		l.active.add(c, 0)
	}
	l.active.content += content
	l.last, l.dirty = last, true
	close(l.changed)
	l.changed = make(chan struct{})
}

// rotate begins a new active segment.
func (l *Log) rotate() error {
	full := l.active
	if err := l.begin(); err != nil {
		return err
	}
	if full != nil {
		l.finish(full)
	}
	return nil
}

// finish marks a segment on disk as one that is not appended to any more, and has it sealed.
func (l *Log) finish(s *segment) {
	if err := s.file.Chmod(0o400); err != nil { // that another one comes after it says the same
		l.opts.Log.Warn("marking a segment of history as full", "file", s.path, "error", err)
	}
	l.mu.Lock()
	s.full = true
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// abandon ends the active segment after a write failed, of some entries. What was written of them is
// cut off; where that fails, too, their positions are not given out again.
func (l *Log) abandon(entries int) {
	s := l.active
	l.active, l.out = nil, nil
	if err := s.file.Truncate(s.bytes); err != nil {
		l.next += uint64(entries)
		l.opts.Log.Warn("cutting off a write that failed", "file", s.path, "error", err)
	}
	l.finish(s)
	if s.last < s.first { // the next one takes its name
		if err := l.remove(s); err != nil {
			l.opts.Log.Warn("removing an empty segment of history", "file", s.path, "error", err)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dirty {
		l.retire(s)
	}
}

// Sync makes what was appended survive a loss of power. After an error the next Append begins a new
// segment: what the failed one has may be lost.
func (l *Log) Sync() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	if n := len(l.segments); n > 0 && l.dirty {
		l.retire(l.segments[n-1])
	}
	list := l.unsynced
	l.unsynced = nil
	l.mu.Unlock()
	var err error
	for _, s := range list {
		if e := s.file.Sync(); e != nil {
			err = fmt.Errorf("segments: syncing %s: %w", s.path, e)
			l.distrust(s)
		}
		s.release()
	}
	return err
}

// distrust ends a segment that could not be synced.
func (l *Log) distrust(s *segment) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.active == s {
		l.active, l.out = nil, nil
		l.finish(s)
	}
}

// expireFor removes the oldest segments so that there is room for some bytes.
func (l *Log) expireFor(bytes int64) {
	if l.opts.MaxBytes == 0 {
		return
	}
	l.expire(func(total int64, _ *segment) bool { return total+bytes > l.opts.MaxBytes })
}

// expire removes the oldest segments as long as one is to go, but never the last.
func (l *Log) expire(goes func(total int64, oldest *segment) bool) {
	l.mu.Lock()
	n, total := 0, l.bytes()
	for n+1 < len(l.segments) && goes(total, l.segments[n]) {
		total -= l.segments[n].bytes
		n++
	}
	gone := l.segments[:n]
	for _, s := range gone {
		l.forget(s)
	}
	l.segments = slices.Clone(l.segments[n:])
	l.mu.Unlock()
	for _, s := range gone {
		if err := os.Remove(s.path); err != nil && !os.IsNotExist(err) {
			l.opts.Log.Warn("removing an expired segment of history", "file", s.path, "error", err)
		}
		s.release()
	}
}
