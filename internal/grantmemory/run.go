package grantmemory

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"time"
)

// run writes what changes, and that the process is alive, until it is to stop or cannot.
func (m *Memory) run(f *os.File, size int64) {
	defer close(m.ended)
	w := &writer{memory: m, file: f, size: size}
	defer func() { w.file.Close() }()
	alive := time.NewTicker(beat)
	defer alive.Stop()
	for {
		var err error
		select {
		case <-m.changed:
			err = w.write()
		case <-alive.C:
			err = w.beat(false)
		case inOrder := <-m.stop:
			m.stopWith(w, inOrder)
			return
		}
		if err != nil {
			m.fail(err)
			return
		}
	}
}

// stopWith ends the file: in order, it is trusted for as long as it is there.
func (m *Memory) stopWith(w *writer, inOrder bool) {
	err := w.write()
	if err == nil && inOrder {
		err = w.beat(true)
	}
	if err != nil || !inOrder {
		m.fail(err)
		return
	}
	m.lease.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.close()
}

// fail gives up: the file is removed or, if it cannot be, is not trusted after its lease.
func (m *Memory) fail(err error) {
	if err != nil {
		m.log.Error("grants are not kept over a restart", "error", err)
	}
	if remove(m.path) != nil {
		return
	}
	m.lease.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.close()
}

// remove removes a file, or what is in it.
func remove(path string) error {
	err := os.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if failed := os.Truncate(path, 0); failed != nil {
		return errors.Join(err, failed)
	}
	return nil
}

// writer writes the file. It belongs to one goroutine.
type writer struct {
	memory *Memory
	file   *os.File
	size   int64
}

// write writes what is pending.
func (w *writer) write() error {
	m := w.memory
	m.mu.Lock()
	if !m.open {
		m.mu.Unlock()
		return errExpired
	}
	pending, waiting, renew := m.pending, m.waiting, m.renew
	var records map[Digest]record
	h := header{complete: m.complete}
	if renew = renew || w.size+int64(len(pending)) > headerBytes+recordBytes*int64(2*len(m.records)+1024); renew {
		records = maps.Clone(m.records)
	}
	m.pending, m.renew = nil, false
	m.mu.Unlock()

	var err error
	if renew {
		err = w.renew(h, records)
	} else if len(pending) > 0 {
		var n int
		n, err = w.file.WriteAt(pending, w.size)
		w.size += int64(n)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open {
		for _, done := range waiting {
			close(done)
		}
		m.waiting = m.waiting[len(waiting):]
	}
	return nil
}

var errExpired = errors.New("it took too long to write")

// renew rewrites the file.
func (w *writer) renew(h header, records map[Digest]record) error {
	var ok bool
	if h.alive, ok = w.memory.extend(); !ok { // before it is written, which may last
		return errExpired
	}
	f, size, err := create(w.memory.path, h, records)
	if err != nil {
		return err
	}
	w.file.Close()
	w.file, w.size = f, size
	return nil
}

// beat says that the process is alive, or has ended in order.
func (w *writer) beat(inOrder bool) error {
	now, ok := w.memory.extend()
	if !ok {
		return errExpired
	}
	if inOrder {
		now = sealed
	}
	w.memory.mu.Lock()
	h := header{w.memory.complete, now}
	w.memory.mu.Unlock()
	_, err := w.file.WriteAt(h.append(nil), 0)
	return err
}
