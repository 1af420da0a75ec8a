package grantmemory

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// Digest is a SHA-256.
type Digest = [sha256.Size]byte

// Lease is how long after its end a process is trusted that has not ended in order.
const (
	Lease = 30 * time.Second
	beat  = 5 * time.Second
	held  = Lease + beat // how long what is to be sent is held back, since the process was last alive

	openPatience = time.Minute // with a disk that does not answer
)

const (
	fileName   = "grants"
	maxRecords = 1 << 17
)

// record is under which grants a key was sent something, from a revision on. The key was sent something
// at revisions before that, too, under grants that are not known.
type record struct {
	grants Digest
	from   aggregate.Revision
	used   bool // by this process
}

// Memory is what is known of all keys. Until Open, and once it could not be written, that is nothing.
type Memory struct {
	path  string
	log   *slog.Logger
	limit int
	now   func() time.Duration

	patience time.Duration // of Open

	mu      sync.Mutex
	records map[Digest]record
	// complete is a revision from which on nothing was sent to keys without a record; 0: unknown.
	complete aggregate.Revision
	pending  []byte          // records that are not written yet
	renew    bool            // the file is to be rewritten
	waiting  []chan struct{} // for what is pending
	open     bool            // what is on disk may be trusted, so that it must be right

	abandoned bool // Open has given up

	lease   *time.Timer
	expires time.Duration
	changed chan struct{} // of capacity 1
	stop    chan bool     // and whether it ends in order
	ended   chan struct{}
}

// New returns the memory of a directory.
func New(directory string, log *slog.Logger) *Memory {
	return &Memory{path: filepath.Join(directory, fileName), log: log, limit: maxRecords, now: sinceBoot, patience: openPatience}
}

// errNoAnswer is of a disk that does not answer.
var errNoAnswer = errors.New("the disk does not answer")

// Open reads what the process before has written, and goes on with it; first is the first revision of
// this process. After an error, what is on disk may be trusted later although it is outdated: nothing
// may then be sent to readers that come from before. A disk that does not answer is one.
func (m *Memory) Open(first aggregate.Revision) error {
	done := make(chan opening, 1)
	go func() {
		o := m.prepare(first)
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.abandoned {
			done <- o
		} else if o.file != nil { // nothing is written to it
			o.file.Close()
			if err := remove(m.path); err != nil {
				m.log.Error("removing what was left of grants failed", "error", err)
			}
		}
	}()
	patience := time.NewTimer(m.patience)
	defer patience.Stop()
	select {
	case o := <-done:
		return m.begin(&o)
	case <-patience.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case o := <-done:
		return m.beginLocked(&o)
	default:
	}
	m.abandoned = true
	return fmt.Errorf("grants: %w", errNoAnswer)
}

// opening is a file that was read and rewritten.
type opening struct {
	header  header
	records map[Digest]record
	file    *os.File // nil: nothing is kept
	size    int64
	err     error
}

func (m *Memory) prepare(first aggregate.Revision) opening {
	h, records, err := read(m.path)
	if now := m.now(); err == nil && h.alive != sealed && (now < h.alive || now-h.alive >= Lease) {
		err = errors.New("its process has ended otherwise than in order, or long ago")
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.log.Info("watches of callers with limited grants start over", "file", m.path, "why", err)
		}
		h, records = header{}, map[Digest]record{}
	}
	if h.complete == 0 {
		h.complete = first
	}
	h.alive = m.now()
	f, size, err := create(m.path, h, records)
	if err != nil {
		if failed := remove(m.path); failed != nil {
			return opening{err: fmt.Errorf("grants: %w", errors.Join(err, failed))}
		}
		m.log.Error("grants are not kept over a restart", "error", err)
		return opening{}
	}
	return opening{header: h, records: records, file: f, size: size}
}

func (m *Memory) begin(o *opening) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.beginLocked(o)
}

// beginLocked goes on with a file. m.mu must be held.
func (m *Memory) beginLocked(o *opening) error {
	if o.err != nil || o.file == nil {
		return o.err
	}
	m.records, m.complete, m.open = o.records, o.header.complete, true
	m.expires, m.lease = o.header.alive+held, time.AfterFunc(held, m.expire)
	m.changed, m.stop, m.ended = make(chan struct{}, 1), make(chan bool, 1), make(chan struct{})
	go m.run(o.file, o.size)
	return nil
}

// Recall returns the grants under which a key was sent something from a revision on. Where they are not
// known, nothing was sent from that revision on; 0: that is not known either.
func (m *Memory) Recall(key Digest) (grants Digest, from aggregate.Revision, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.records[key]; ok {
		return r.grants, r.from, true
	}
	return Digest{}, m.complete, false
}

// Remember has what is on disk be right before it returns: that a key is sent something under grants, and
// was not under others from a revision on; or that nothing on disk is trusted.
func (m *Memory) Remember(key, grants Digest, from aggregate.Revision) {
	if done := m.remember(key, grants, from); done != nil {
		<-done
	}
}

func (m *Memory) remember(key, grants Digest, from aggregate.Revision) (done chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, had := m.records[key]
	switch {
	case !m.open:
		return nil
	case had && r.grants == grants:
		r.used = true
		m.records[key] = r
		return m.written()
	case !had && len(m.records) >= m.limit:
		if m.complete == 0 {
			return m.written() // without a record, nothing is known of it
		}
		if m.makeRoom(); len(m.records) < m.limit {
			break
		}
		m.complete, m.renew = 0, true
		return m.wait()
	}
	r = record{grants, from, true}
	m.records[key] = r
	m.pending = appendRecord(m.pending, key, r)
	return m.wait()
}

// makeRoom drops the records that this process has not used, if there are many.
func (m *Memory) makeRoom() {
	used := maps.Clone(m.records)
	maps.DeleteFunc(used, func(_ Digest, r record) bool { return !r.used })
	if len(used) <= m.limit*3/4 {
		m.records, m.complete, m.renew = used, 0, true
	}
}

// written is for who adds nothing to what is pending, and rests on it: nil where all of it is on disk.
func (m *Memory) written() chan struct{} {
	if len(m.pending) == 0 && !m.renew && len(m.waiting) == 0 {
		return nil
	}
	return m.wait()
}

func (m *Memory) wait() chan struct{} {
	done := make(chan struct{})
	m.waiting = append(m.waiting, done)
	select {
	case m.changed <- struct{}{}:
	default: // there was more already
	}
	return done
}

// close ends what is remembered: nothing on disk is trusted any more. m.mu must be held.
func (m *Memory) close() {
	m.open, m.records, m.complete, m.pending = false, nil, 0, nil
	for _, done := range m.waiting {
		close(done)
	}
	m.waiting = nil
}

// extend says that what is on disk is trusted for longer from now on, false if it is too late for that.
func (m *Memory) extend() (now time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now = m.now()
	if m.open {
		m.expires = now + held
	}
	return now, m.open
}

// expire is called once what is on disk is too old to be trusted.
func (m *Memory) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left := m.expires - m.now(); left > 0 {
		m.lease.Reset(left)
	} else if m.open {
		m.log.Error("grants are not kept over a restart", "error", "the disk does not answer")
		m.close()
	}
}

// Close ends the memory, after nothing more is sent to anybody. If the process does not end in order, what
// is on disk is removed.
func (m *Memory) Close(inOrder bool) {
	if m.stop == nil {
		return
	}
	select {
	case m.stop <- inOrder:
	default: // it was closed before
	}
	select {
	case <-m.ended:
	case <-time.After(beat): // what hangs is not waited for
	}
}
