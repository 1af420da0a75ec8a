package persistence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// bridge is the load of an index: readers that come from the revisions before it go on with those
// after it.
type bridge struct {
	Since aggregate.Revision `json:"since"`
	To    aggregate.Revision `json:"to"`
}

// maxBridges bounds how many restarts readers can go back.
const maxBridges = 256

// begin continues the files that were loaded, or begins with all that there is.
func (w *writer) begin(ctx context.Context) error {
	s := w.store
	loaded := s.loaded
	s.loaded = nil // what follows, also after a failure, is not what was loaded
	w.segments.start(ctx, s, w.index)
	if err := w.makeWay(loaded == nil); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.opts.Directory, membersDir), 0o700); err != nil {
		return err
	}
	for name, m := range loaded {
		if err := w.resume(ctx, name, m); err != nil {
			return fmt.Errorf("member %q: %w", name, err)
		}
	}
	for m := range w.last.Members() {
		if w.logs[m.Name] != nil {
			continue
		}
		if err := w.beginMember(ctx, m.Name); err != nil {
			return fmt.Errorf("member %q: %w", m.Name, err)
		}
	}
	for name, m := range w.logs {
		w.ends.change(name, end{m.number, m.seen})
	}
	if err := s.writeManifest(); err != nil {
		return err
	}
	if err := w.ends.write(w.last.Revision()); err != nil {
		return err
	}
	w.removeLeft()
	return nil
}

// makeWay removes what is on disk where all is rewritten. Where readers cannot go on from it, that must
// not be forgotten if the process ends before it has written what is there now.
func (w *writer) makeWay(anew bool) error {
	s := w.store
	if anew {
		s.forgetDictionaries()
		s.bridges = nil
		return s.clear()
	}
	if len(s.bridges) > 0 {
		return nil
	}
	if err := os.Remove(filepath.Join(s.opts.Directory, endsName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// beginMember writes all of a member of which nothing is on disk.
func (w *writer) beginMember(ctx context.Context, name string) error {
	if err := os.RemoveAll(memberDir(w.store.opts.Directory, name)); err != nil {
		return err
	}
	m, err := w.newLog(header{Member: name, Number: 1, Needs: true})
	if err != nil {
		return err
	}
	return errors.Join(w.writeAll(ctx, m, w.last), w.count())
}

// resume continues the files of a member that was loaded.
func (w *writer) resume(ctx context.Context, name string, m *loadedMember) error {
	dir := memberDir(w.store.opts.Directory, name)
	if m.nothing {
		return os.RemoveAll(dir)
	}
	for _, unused := range m.unused {
		if err := os.Remove(filepath.Join(dir, unused)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// What was dropped must not come back with what is added to it, nor end what is read next time.
	anew := len(m.dropped) > 0 || m.doubt != nil || len(m.logs) == 0
	l, err := w.newLog(header{Member: name, Number: m.number + 1, Follows: m.last, Needs: anew})
	if err != nil {
		return err
	}
	if anew {
		return w.writeAll(ctx, l, w.last)
	}
	l.base, l.logs = m.segment, len(m.logs)
	for _, n := range m.logs {
		l.logged += n
	}
	for _, kind := range w.last.KindsOf(name) {
		l.note(kind, w.last.Reached(name, kind))
	}
	return nil
}

// writeManifest says what the files are of.
func (s *Store) writeManifest() error {
	m := manifest{Format: formatVersion, Boot: s.opts.Boot, Sealed: len(s.opts.Key) > 0, Bridges: s.bridges}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	path := filepath.Join(s.opts.Directory, manifestName)
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return frames.SyncDir(s.opts.Directory)
}

// forgetDictionaries has all dictionaries written again.
func (s *Store) forgetDictionaries() {
	s.saving.Lock()
	defer s.saving.Unlock()
	clear(s.saved)
}
