package history

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	markerName  = "unrecorded"
	markerBytes = 4096 // a block of the disk, so that it can be written when that is full
)

// marker is a file that says since when nothing is recorded, for the next process if this one ends meanwhile. It belongs to one goroutine.
type marker struct {
	file  *os.File
	since time.Time // zero: all is
}

// unknownSince is of a marker that says that something is not recorded, but not since when.
var unknownSince = time.Unix(0, 0).UTC()

// openMarker opens the marker in a directory.
func openMarker(directory string) (*marker, error) {
	f, err := os.OpenFile(filepath.Join(directory, markerName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	m := &marker{file: f}
	content := make([]byte, markerBytes)
	n, _ := f.ReadAt(content, 0)
	text := bytes.TrimSpace(content[:n])
	if len(text) > 0 {
		if m.since, err = time.Parse(time.RFC3339Nano, string(text)); err != nil {
			m.since = unknownSince
		}
	}
	if n < markerBytes {
		if err := m.write(m.since); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return m, nil
}

// unmarked returns a marker that no other process sees.
func unmarked() *marker { return &marker{} }

// set notes since when nothing is recorded; zero: all is.
func (m *marker) set(since time.Time) error {
	if m.since = since; m.file == nil {
		return nil
	}
	return m.write(since)
}

func (m *marker) write(since time.Time) error {
	content := bytes.Repeat([]byte{' '}, markerBytes)
	if !since.IsZero() {
		copy(content, since.UTC().Format(time.RFC3339Nano))
	}
	if _, err := m.file.WriteAt(content, 0); err != nil {
		return fmt.Errorf("noting since when nothing is recorded: %w", err)
	}
	return m.file.Sync()
}

func (m *marker) close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}

// Suspend notes in a directory that from now on nothing is recorded, so that the next process to record knows. Where nothing was recorded, it
// does nothing.
func Suspend(directory string, now time.Time) error {
	if _, err := os.Stat(filepath.Join(directory, markerName)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("history: %w", err)
	}
	m, err := openMarker(directory)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	if m.since.IsZero() {
		err = m.set(now)
	}
	if err = errors.Join(err, m.file.Close()); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}
