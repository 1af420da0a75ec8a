package persistence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/internal/dirlock"
	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// Inspection is what is in a directory.
type Inspection struct {
	Directory string             `json:"directory"`
	InUse     bool               `json:"inUse"`             // a process has it locked
	Encrypted bool               `json:"encrypted"`         // whether it says so
	Readers   aggregate.Revision `json:"readers,omitempty"` // the last revision that readers may have seen; 0: not known
	Bytes     int64              `json:"bytes"`
	Problem   string             `json:"problem,omitempty"` // of all of it: nothing is loaded then
	Members   []InspectedMember  `json:"members"`
}

// InspectedMember is what there is of a member.
type InspectedMember struct {
	Name     string             `json:"name"`
	Segments int                `json:"segments"`
	Logs     int                `json:"logs"`
	Frames   int                `json:"frames"` // that are sound
	Bytes    int64              `json:"bytes"`
	Revision aggregate.Revision `json:"revision,omitempty"` // of the last frame that is sound
	Written  time.Time          `json:"written"`            // when a file was written last
	Problems []string           `json:"problems,omitempty"` // frames and files that are not sound, and what would not be loaded
}

// Inspect reads all files of a directory, checks their frames, and loads each member to see whether
// that can be done. It changes nothing, and may be called while a process writes to the directory:
// what is being written is then no problem.
func Inspect(ctx context.Context, directory string, key []byte) (*Inspection, error) {
	if _, err := os.Stat(directory); err != nil {
		return nil, fmt.Errorf("persistence: %w", err)
	}
	s := &Store{opts: Options{Directory: directory, Key: key}}
	out := &Inspection{Directory: directory, InUse: dirlock.InUse(directory)}
	out.Problem = s.inspectManifest(out)
	if tip, _, err := s.readEnds(); err == nil {
		out.Readers = tip
	}
	out.Bytes = directorySize(filepath.Join(directory, dictionariesDir))
	entries, err := os.ReadDir(filepath.Join(directory, membersDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("persistence: %w", err)
	}
	t, err := s.newTrial(out)
	if err != nil {
		return nil, fmt.Errorf("persistence: %w", err)
	}
	for _, e := range entries {
		name, ok := memberOf(directory, e.Name())
		if !ok {
			continue
		}
		m := InspectedMember{Name: name}
		if err := s.inspectMember(ctx, &m, t); err != nil {
			return nil, fmt.Errorf("persistence: member %q: %w", name, err)
		}
		out.Bytes += m.Bytes
		out.Members = append(out.Members, m)
	}
	return out, nil
}

func (s *Store) inspectManifest(out *Inspection) (problem string) {
	text, err := os.ReadFile(filepath.Join(s.opts.Directory, manifestName))
	var m manifest
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "there is no manifest: nothing was kept yet"
	case err != nil:
		return err.Error()
	case json.Unmarshal(text, &m) != nil:
		return "the manifest is not one"
	}
	out.Encrypted = m.Sealed
	switch {
	case m.Format != formatVersion:
		return fmt.Sprintf("it has format %d, this is format %d", m.Format, formatVersion)
	case m.Sealed && len(s.opts.Key) == 0:
		return "it is encrypted, and no key is given"
	case !m.Sealed && len(s.opts.Key) > 0:
		return "it is not encrypted, and a key is given"
	}
	return ""
}

func (s *Store) inspectMember(ctx context.Context, m *InspectedMember, t *trial) error {
	dir := memberDir(s.opts.Directory, m.Name)
	files, err := listMember(dir)
	if err != nil {
		return err
	}
	m.Segments, m.Logs = len(files.segments), len(files.logs)
	for _, of := range []struct {
		kind    string
		numbers []uint64
	}{{segmentType, files.segments}, {logType, files.logs}} {
		for _, n := range of.numbers {
			if err := s.inspectFile(ctx, m, dir, n, of.kind); err != nil {
				return err
			}
		}
	}
	for _, name := range files.others {
		if !strings.HasSuffix(name, ".tmp") {
			m.Problems = append(m.Problems, name+": not a file of federator")
		}
	}
	if t.inUse {
		m.Problems = slices.DeleteFunc(m.Problems, func(p string) bool { return strings.HasSuffix(p, (&frames.TornError{}).Error()) })
	}
	if t.pointless {
		return nil
	}
	why, err := t.dropped(ctx, m)
	if err == nil && why != "" {
		m.Problems = append(m.Problems, why)
	}
	return err
}

func (s *Store) inspectFile(ctx context.Context, m *InspectedMember, dir string, number uint64, kind string) error {
	name := fileName(number, kind)
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was compacted meanwhile
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	m.Bytes += info.Size()
	if info.ModTime().After(m.Written) {
		m.Written = info.ModTime()
	}
	in, _, err := openFrames(f, s.opts.Key, number, kind, m.Name)
	for ended := false; err == nil && ctx.Err() == nil; {
		var fr frames.Frame
		if fr, err = in.Next(); err != nil {
			if errors.Is(err, io.EOF) && (kind == logType || ended) {
				return nil
			}
			break
		}
		m.Frames, ended = m.Frames+1, fr.Kind == typeEnd
		m.Revision = max(m.Revision, aggregate.Revision(fr.Revision))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("has no end")
	}
	m.Problems = append(m.Problems, fmt.Sprintf("%s: %v", name, err))
	return nil
}

// directorySize is the size of all files in a directory, of those that can be read.
func directorySize(dir string) (bytes int64) {
	entries, _ := os.ReadDir(dir) // there may be none
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}
