package persistence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
	w.segments.start(ctx, s, w.index)
	anew := s.loaded == nil
	if anew {
		if err := s.clear(); err != nil {
			return err
		}
		s.forgetDictionaries()
		s.bridges = nil
	}
	if err := os.MkdirAll(filepath.Join(s.opts.Directory, membersDir), 0o700); err != nil {
		return err
	}
	loaded := s.loaded
	s.loaded = nil // what follows is not what was loaded
	for name, m := range loaded {
		if err := w.resume(ctx, name, m); err != nil {
			return fmt.Errorf("member %q: %w", name, err)
		}
	}
	for m := range w.last.Members() {
		if w.logs[m.Name] != nil {
			continue
		}
		l, err := w.log(m.Name)
		if err != nil {
			return fmt.Errorf("member %q: %w", m.Name, err)
		}
		if l.base, err = s.writeSegment(ctx, w.index, m.Name, l.number, w.last, false); err != nil {
			return err
		}
		l.noteAll(w.last)
		if err := w.count(); err != nil {
			return err
		}
	}
	for name, m := range w.logs {
		w.ends.change(name, end{m.number, m.seen})
	}
	if err := s.writeManifest(); err != nil {
		return err
	}
	return w.ends.write(w.last.Revision())
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
	f, err := newLog(w.store.opts.Directory, w.store.opts.Key, name, m.number+1, m.last, false)
	if err != nil {
		return err
	}
	l := newMemberLog(w.store.opts.Directory, name, m.number+1, f)
	l.base, l.logs = m.segment, len(m.logs)
	for _, n := range m.logs {
		l.logged += n
	}
	l.noteAll(w.last)
	w.logs[name] = l
	if len(m.dropped) == 0 {
		return nil
	}
	// What was dropped must not come back with what is added to it.
	if l.base, err = w.store.writeSegment(ctx, w.index, name, l.number, w.last, false); err != nil {
		return err
	}
	l.logged, l.logs = 0, 0
	return removeBefore(dir, l.number)
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
	return syncDir(s.opts.Directory)
}

// forgetDictionaries has all dictionaries written again.
func (s *Store) forgetDictionaries() {
	s.saving.Lock()
	defer s.saving.Unlock()
	clear(s.saved)
}
