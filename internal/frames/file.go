package frames

import "os"

// keptBuffer is how much of a buffer is kept from one Flush to the next.
const keptBuffer = 4 << 20

// File is one that this process appends to. The zero File only collects frames.
type File struct {
	f      *os.File
	seal   *Sealer
	offset int64
	buf    []byte // frames that are not written yet
	err    error  // the first; nothing is written after it
}

// Create makes a file with a header, which the first Flush writes. Nobody else may read it.
func Create(path string, key, header, salt []byte, info string) (*File, error) {
	seal, err := NewSealer(key, salt, header, info)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	w := &File{f: f}
	w.Add(TypeHeader, 0, header)
	if w.seal = seal; seal != nil {
		w.Add(TypeProof, 0, nil)
	}
	return w, nil
}

// Continue appends to a file that was made before, is opened with O_APPEND, and ends with a whole
// frame at the offset, beyond which nothing has ever been written: nonces are offsets.
func Continue(f *os.File, seal *Sealer, offset int64) *File {
	return &File{f: f, seal: seal, offset: offset}
}

// Add adds a frame, which Flush writes.
func (w *File) Add(kind byte, revision uint64, payload []byte) {
	w.buf = Append(w.buf, w.seal, w.offset+int64(len(w.buf)), kind, revision, payload)
}

// Flush writes what was added, with one write. After an error nothing more is written.
func (w *File) Flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	n, err := w.f.Write(w.buf)
	w.offset += int64(n)
	if err != nil {
		w.err = err
	}
	if w.buf = w.buf[:0]; cap(w.buf) > keptBuffer {
		w.buf = nil
	}
	return w.err
}

// Discard drops what was added and not written.
func (w *File) Discard() { w.buf = nil }

// Written is how many bytes the file has.
func (w *File) Written() int64 { return w.offset }

// Buffered is how many bytes were added and not written.
func (w *File) Buffered() int { return len(w.buf) }

// Size is how many bytes the file will have once it is flushed.
func (w *File) Size() int64 { return w.offset + int64(len(w.buf)) }

// Sealer is what seals the file's frames.
func (w *File) Sealer() *Sealer { return w.seal }

// File is the file below.
func (w *File) File() *os.File { return w.f }

// Sync makes what was written survive a loss of power.
func (w *File) Sync() error { return w.f.Sync() }

// Close closes the file without writing what was not flushed.
func (w *File) Close() { w.f.Close() }

// SyncDir makes the names in a directory last.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
