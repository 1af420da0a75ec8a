package segments

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/internal/dirlock"
	"federator.dev/federator/internal/frames"
)

// Log is an open log.
type Log struct {
	opts    Options
	id      string
	lock    *os.File
	decoder *zstd.Decoder
	sealing atomic.Int64  // bytes of the file that is being sealed
	wake    chan struct{} // of Run: a segment is full

	// writing orders writes, and is held across them: no reader takes it. It guards what follows, and
	// is taken before mu.
	writing sync.Mutex
	active  *segment     // the last of segments; nil: the next Append begins one
	out     *frames.File // writes the active one
	next    uint64       // position
	block   blockWriter

	mu       sync.Mutex
	segments []*segment // in order of positions
	last     Mark       // appended
	changed  chan struct{}
	unsynced []*segment // that are not appended to any more; each is acquired
	dirty    bool       // the active one is not synced
	problem  error      // why a full segment is not sealed
	closed   bool
}

// Open opens the log of a directory, or begins one. The error is dirlock.ErrLocked where another
// process, or this one, has it open. What is damaged is no error: it is a gap (Gaps), and logged.
func Open(opts Options) (*Log, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(opts.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("segments: %w", err)
	}
	lock, err := dirlock.Lock(opts.Directory)
	if err != nil {
		return nil, fmt.Errorf("segments: %w", err)
	}
	l := &Log{opts: opts, lock: lock, wake: make(chan struct{}, 1), changed: make(chan struct{}), next: 1}
	if err := l.open(); err != nil {
		for _, s := range l.segments {
			s.release()
		}
		lock.Close()
		return nil, fmt.Errorf("segments: %w", err)
	}
	return l, nil
}

func (l *Log) open() (err error) {
	// Blocks are bounded, whatever they say of themselves.
	if l.decoder, err = zstd.NewReader(nil, zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(2*maxBlockBytes), zstd.WithDecoderConcurrency(0)); err != nil {
		return err
	}
	state, err := l.load()
	if err != nil {
		return err
	}
	if l.id == "" {
		l.id = rand.Text()
	}
	for _, s := range l.segments {
		if s.last >= s.first && s.damaged == nil {
			l.last = Mark{s.last, timeOf(s.until)}
		}
	}
	if err := l.resume(state); err != nil {
		return err
	}
	for _, g := range l.Gaps() {
		l.opts.Log.Warn("history is incomplete", "from", g.From, "to", g.To, "error", g.Err)
	}
	return nil
}

// load opens all segments. It returns the state of the last one, if that is unsealed.
func (l *Log) load() (last *unsealedState, err error) {
	names, err := os.ReadDir(l.opts.Directory)
	if err != nil {
		return nil, err
	}
	for _, n := range names { // sorted: by position, unsealed ones after sealed ones of the same, as '-' < '.'
		path := filepath.Join(l.opts.Directory, n.Name())
		if filepath.Ext(path) == temporarySuffix {
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			continue
		}
		first, to, ok := parseName(n.Name())
		if !ok {
			continue
		}
		s, state, err := l.openSegment(path, first, to)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name(), err)
		}
		if last, err = l.place(s, state); err != nil {
			return nil, err
		}
		if state.id != "" {
			l.id = state.id
		}
	}
	l.endDamaged()
	return last, nil
}

func (l *Log) openSegment(path string, first, last uint64) (*segment, *unsealedState, error) {
	if last > 0 {
		s, id, err := openSealed(path, l.opts.Key, first, last)
		return s, &unsealedState{id: id}, err
	}
	s, state, err := openUnsealed(path, l.opts.Key, first)
	return s, &state, err
}

// place adds a segment to those before it, and returns its state if it is unsealed and the last one.
// One that was sealed when the process ended is there in both forms: the sealed one is in effect, if
// it is sound.
func (l *Log) place(s *segment, state *unsealedState) (*unsealedState, error) {
	n := len(l.segments)
	if n > 0 && l.segments[n-1].first == s.first {
		sealed := l.segments[n-1]
		if sealed.damaged == nil || s.damaged != nil {
			defer s.release()
			return nil, os.Remove(s.path)
		}
		l.segments = l.segments[:n-1]
		sealed.release()
		if err := os.Remove(sealed.path); err != nil {
			s.release()
			return nil, err
		}
	} else if n > 0 && s.first <= l.segments[n-1].last {
		l.opts.Log.Error("a segment of history is of positions that another one has: it is not read", "file", s.path)
		s.release()
		return nil, nil
	}
	l.segments = append(l.segments, s)
	if s.isSealed() {
		return nil, nil
	}
	return state, nil
}

// endDamaged sets how far unsealed segments go of which nothing can be read: up to the next one.
func (l *Log) endDamaged() {
	for i, s := range l.segments {
		if s.full = true; s.damaged == nil || s.isSealed() {
			continue
		}
		if s.last = s.first + maxPositions - 1; i+1 < len(l.segments) {
			s.last = l.segments[i+1].first - 1
		}
	}
}

// resume begins the segment that is appended to: the last one goes on if nothing of it can have
// been lost, and nothing was ever written beyond its end.
func (l *Log) resume(state *unsealedState) error {
	n := len(l.segments)
	if n == 0 {
		return l.begin()
	}
	s := l.segments[n-1]
	l.next = s.last + 1
	if state == nil || s.damaged != nil {
		return l.begin()
	}
	sameBoot := l.opts.Boot != "" && state.boot == l.opts.Boot
	if doubt := !torn(state.end) && !ended(state.end); doubt || !state.closed && !sameBoot {
		l.next = s.first + maxPositions
		return l.begin()
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if !ended(state.end) || info.Mode().Perm()&0o200 == 0 || !l.hasRoom(s) {
		if s.last < s.first { // another one takes its name
			if err := l.remove(s); err != nil {
				return err
			}
		}
		return l.begin()
	}
	s.full = false
	l.active, l.out = s, frames.Continue(s.file, s.seal, state.offset)
	if !state.closed {
		return nil
	}
	// From now on the end of the file is no proof that all is there.
	l.out.Add(typeResumed, 0, []byte(l.opts.Boot))
	if err := l.out.Flush(); err != nil {
		return err
	}
	s.bytes = l.out.Written()
	return l.out.Sync()
}

// headerRoom is more than a segment has before its entries.
const headerRoom = 1 << 10

// begin begins a segment at the next position. It is on disk before it is appended to, so that it is
// known after any loss which positions may have been given out.
func (l *Log) begin() error {
	l.expireFor(headerRoom)
	path := filepath.Join(l.opts.Directory, unsealedName(l.next))
	temporary := path + temporarySuffix
	if err := os.Remove(temporary); err != nil && !os.IsNotExist(err) {
		return err
	}
	out, err := createFile(temporary, l.opts.Key, header{Type: unsealedType, Log: l.id, First: l.next, Boot: l.opts.Boot})
	if err != nil {
		return err
	}
	if err = out.Flush(); err == nil {
		err = out.Sync()
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err == nil {
		err = frames.SyncDir(l.opts.Directory)
	}
	if err != nil {
		out.Close()
		os.Remove(temporary) // nothing follows from its being there
		os.Remove(path)
		return err
	}
	now := l.opts.Now().UnixMilli()
	s := &segment{path: path, first: l.next, last: l.next - 1, file: out.File(), seal: out.Sealer(), bytes: out.Written(), since: now, until: now}
	s.refs.Store(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active, l.out = s, out; len(l.segments) > 0 && l.dirty {
		l.retire(l.segments[len(l.segments)-1])
	}
	l.segments, l.dirty = append(l.segments, s), false
	return nil
}

// retire has a segment synced that is not appended to any more. The caller holds mu.
func (l *Log) retire(s *segment) {
	s.acquire()
	l.unsynced, l.dirty = append(l.unsynced, s), false
}

// forget has a segment not synced that is not needed any more. The caller holds mu, and a reference.
func (l *Log) forget(s *segment) {
	if i := slices.Index(l.unsynced, s); i >= 0 {
		l.unsynced = slices.Delete(l.unsynced, i, i+1)
		s.release()
	}
}

// remove removes a segment from the log and from the disk.
func (l *Log) remove(s *segment) error {
	l.mu.Lock()
	i := slices.Index(l.segments, s)
	if i >= 0 {
		l.segments = slices.Delete(slices.Clone(l.segments), i, i+1)
		l.forget(s)
	}
	l.mu.Unlock()
	if i < 0 {
		return nil
	}
	err := os.Remove(s.path)
	s.release()
	return err
}

// Close syncs and closes the log. Run must have returned. Readers end with ErrClosed.
func (l *Log) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	close(l.changed)
	segments, unsynced := l.segments, l.unsynced
	l.segments, l.unsynced = nil, nil
	l.mu.Unlock()
	var err error
	for _, s := range unsynced {
		if e := s.file.Sync(); e != nil {
			err = e
		}
		s.release()
	}
	if l.active != nil && err == nil {
		l.out.Add(typeClosed, 0, nil)
		// The mark must not be there without what is before it.
		if err = l.out.Sync(); err == nil {
			err = l.out.Flush()
		}
		if err == nil {
			err = l.out.Sync()
		}
	}
	for _, s := range segments {
		s.release()
	}
	l.lock.Close()
	if err != nil {
		return fmt.Errorf("segments: closing: %w", err)
	}
	return nil
}

// ID names this log: another one in its place, whose positions say nothing about it, has another.
func (l *Log) ID() string { return l.id }

// Status returns what the log holds now.
func (l *Log) Status() Status {
	gaps := len(l.Gaps())
	l.mu.Lock()
	defer l.mu.Unlock()
	st := Status{Last: l.last, Segments: len(l.segments), Gaps: gaps, Bytes: l.bytes(), Problem: l.problem}
	for i, s := range l.segments {
		if s.damaged != nil || s.last < s.first {
			continue
		}
		if st.Oldest.Position == 0 {
			st.Oldest = Mark{s.first, timeOf(s.since)}
			if len(s.chunks) > 0 {
				st.Oldest.Position = s.chunks[0].first
			}
		}
		if s.sealed == nil && i < len(l.segments)-1 {
			st.Unsealed++
		}
	}
	return st
}

// bytes is how much is on disk. The caller holds mu.
func (l *Log) bytes() int64 {
	n := l.sealing.Load()
	for _, s := range l.segments {
		n += s.bytes
	}
	return n
}

// Gaps returns what is known to be missing between the oldest and the last position, without what
// readers find damaged, in order of positions.
func (l *Log) Gaps() (gaps []GapError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.segments {
		if i > 0 {
			if g := s.hole(l.segments[i-1].last, l.segments[i-1].until); g != nil {
				gaps = append(gaps, *g)
			}
		}
		if s.damaged != nil {
			gaps = append(gaps, *s.whole())
		}
	}
	return gaps
}

// More returns a channel that is closed once there is an entry after a position, or the log is
// closed.
func (l *Log) More(after uint64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.Position > after {
		c := make(chan struct{})
		close(c)
		return c
	}
	return l.changed
}
