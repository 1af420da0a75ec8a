package persistence

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// Dictionaries are shared by all members: each is a file, named by its content.
const dictionariesDir = "dictionaries"

const typeDictionary byte = 'D'

// saveDictionaries writes the dictionaries that an encoder has used and that are not there yet.
func (s *Store) saveDictionaries(e *aggregate.Encoder) (err error) {
	for d := range e.Dictionaries {
		if err = s.saveDictionary(d); err != nil {
			return fmt.Errorf("dictionary: %w", err)
		}
	}
	return nil
}

func (s *Store) saveDictionary(d *aggregate.Dictionary) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	id := d.ID()
	if s.saved[id] > 0 {
		return nil
	}
	dir := filepath.Join(s.opts.Directory, dictionariesDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, hex.EncodeToString(id[:]))
	temporary := path + ".tmp"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	h := header{Format: formatVersion, Type: dictionaryType, Salt: frames.NewSalt(), Sealed: len(s.opts.Key) > 0}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	f, err := frames.Create(temporary, s.opts.Key, text, h.Salt, keyInfo)
	if err != nil {
		return err
	}
	defer f.Close()
	f.Add(typeDictionary, 0, d.Bytes())
	if err := f.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	if err := frames.SyncDir(dir); err != nil { // without it all that uses it is lost with the power
		return err
	}
	s.saved[id] = f.Written()
	return nil
}

// dictionaryBytes is what all dictionaries have on disk.
func (s *Store) dictionaryBytes() (bytes int64) {
	s.saving.Lock()
	defer s.saving.Unlock()
	for _, n := range s.saved {
		bytes += n
	}
	return bytes
}

const dictionaryType = "dictionary"

// loadDictionaries makes all dictionaries known that are sound. What was encoded with another is
// found out by its bodies.
func (s *Store) loadDictionaries(l *aggregate.Loader) error {
	dir := filepath.Join(s.opts.Directory, dictionariesDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		d, err := s.loadDictionary(l, path)
		if err == nil {
			sum := d.ID()
			if hex.EncodeToString(sum[:]) == e.Name() {
				s.saving.Lock()
				s.saved[sum] = int64(len(d.Bytes()))
				s.saving.Unlock()
				continue
			}
		}
		s.opts.Log.Warn("dropping a dictionary that is not sound", "file", path, "error", err)
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// dropDictionaries removes the dictionaries that nothing was decoded by which is still held. One that
// cannot be removed is only in the way.
func (s *Store) dropDictionaries(l *aggregate.Loader) {
	s.saving.Lock()
	defer s.saving.Unlock()
	for id := range s.saved {
		if l.Used(id) {
			continue
		}
		path := filepath.Join(s.opts.Directory, dictionariesDir, hex.EncodeToString(id[:]))
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.opts.Log.Warn("removing a dictionary that is not used failed", "file", path, "error", err)
			continue
		}
		delete(s.saved, id)
	}
}

func (s *Store) loadDictionary(l *aggregate.Loader, path string) (*aggregate.Dictionary, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, _, err := openFrames(f, s.opts.Key, 0, dictionaryType, "")
	if err != nil {
		return nil, err
	}
	fr, err := r.Next()
	if err != nil {
		return nil, err
	}
	if fr.Kind != typeDictionary {
		return nil, frames.ErrDoubt
	}
	return l.Dictionary(fr.Payload)
}

// openFrames reads the header of a file, and returns what reads the rest.
func openFrames(in io.Reader, key []byte, number uint64, kind, member string) (*frames.Reader, *header, error) {
	r := frames.NewReader(in)
	f, err := r.Next()
	if err != nil {
		return nil, nil, err
	}
	var h header
	if f.Kind != frames.TypeHeader || json.Unmarshal(f.Payload, &h) != nil {
		return nil, nil, fmt.Errorf("header: %w", frames.ErrDoubt)
	}
	if err := h.check(number, kind, member, len(key) > 0); err != nil {
		return nil, nil, err
	}
	if len(h.Salt) != frames.SaltBytes {
		return nil, nil, fmt.Errorf("header: salt of %d bytes: %w", len(h.Salt), frames.ErrDoubt)
	}
	if r.Seal, err = frames.NewSealer(key, h.Salt, f.Payload, keyInfo); err != nil {
		return nil, nil, err
	}
	if r.Seal == nil {
		return r, &h, nil
	}
	if f, err = r.Next(); err == nil && f.Kind != frames.TypeProof {
		err = fmt.Errorf("header: %w", frames.ErrDoubt)
	}
	return r, &h, err
}
