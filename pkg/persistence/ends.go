package persistence

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// A file says how far the files of all members go, and up to which revision readers may have seen what
// they have. Each batch appends a frame to it, in one write, once all of the batch is in the logs:
// what they have beyond it nobody has seen, and what they have less was lost.
const (
	endsName = "ends"
	endsType = "ends"

	typeEnds    byte = 'N' // changes of some members
	typeAllEnds byte = 'A' // of all that there are

	endsBytes = 1 << 20 // from which on it is rewritten
)

// end is how far a member's files go: the number of its log, and bytes of it. 0 is none, of a member
// that has left.
type end struct {
	number uint64
	size   int64
}

// endsFile is the file, as it is written.
type endsFile struct {
	store   *Store
	file    *frames.File
	all     map[string]end
	payload []byte
	limit   int64 // bytes from which on it is rewritten
}

func appendEnd(dst []byte, name string, e end) []byte {
	dst = binary.AppendUvarint(appendText(dst, name), e.number)
	return binary.AppendUvarint(dst, uint64(e.size))
}

// change notes that the files of a member go on to an end, for the next write.
func (e *endsFile) change(name string, to end) {
	if to.number == 0 {
		delete(e.all, name)
	} else {
		e.all[name] = to
	}
	e.payload = appendEnd(e.payload, name, to)
}

// write writes what has changed, and that readers may see up to a revision.
func (e *endsFile) write(tip aggregate.Revision) error {
	if e.file == nil || e.file.Size() > e.limit {
		return e.rewrite(tip)
	}
	e.file.Add(typeEnds, uint64(tip), e.payload)
	e.payload = e.payload[:0]
	return e.file.Flush()
}

// rewrite writes all of it to a new file.
func (e *endsFile) rewrite(tip aggregate.Revision) error {
	path := filepath.Join(e.store.opts.Directory, endsName)
	if err := os.Remove(path + ".tmp"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	h := header{Format: formatVersion, Type: endsType, Salt: frames.NewSalt(), Sealed: len(e.store.opts.Key) > 0}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	f, err := frames.Create(path+".tmp", e.store.opts.Key, text, h.Salt, keyInfo)
	if err != nil {
		return err
	}
	e.payload = e.payload[:0]
	for name, to := range e.all {
		e.payload = appendEnd(e.payload, name, to)
	}
	f.Add(typeAllEnds, uint64(tip), e.payload)
	e.payload = e.payload[:0]
	if err = f.Flush(); err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		f.Close()
		return err
	}
	e.close()
	e.file, e.limit = f, max(endsBytes, 4*f.Written())
	return nil
}

func (e *endsFile) close() {
	if e.file != nil {
		e.file.Close()
	}
}

// readEnds returns the last revision that readers may have seen, and how far the files of members go
// that they have seen then.
func (s *Store) readEnds() (tip aggregate.Revision, all map[string]end, err error) {
	f, err := os.Open(filepath.Join(s.opts.Directory, endsName))
	if err != nil {
		return 0, nil, fmt.Errorf("it is not known what readers have seen: %w", err)
	}
	defer f.Close()
	r, _, err := openFrames(f, s.opts.Key, 0, endsType, "")
	if err != nil {
		return 0, nil, fmt.Errorf("it is not known what readers have seen: %w", err)
	}
	for {
		fr, err := r.Next()
		var torn *frames.TornError
		if errors.Is(err, io.EOF) || errors.As(err, &torn) {
			if all == nil {
				return 0, nil, fmt.Errorf("it is not known what readers have seen: %w", frames.ErrDoubt)
			}
			return tip, all, nil // nobody has seen what was to come
		}
		if err == nil && (fr.Kind == typeAllEnds) != (all == nil) || err == nil && fr.Kind != typeAllEnds && fr.Kind != typeEnds {
			err = frames.ErrDoubt
		}
		if err != nil {
			return 0, nil, fmt.Errorf("it is not known what readers have seen: %w", err)
		}
		if all == nil {
			all = map[string]end{}
		}
		p := payload{rest: fr.Payload}
		for len(p.rest) > 0 && p.err == nil {
			name := p.text("a member")
			to := end{p.uvarint("a number"), int64(p.uvarint("a size"))}
			if all[name] = to; to.number == 0 {
				delete(all, name)
			}
			if to.size < 0 {
				p.err = frames.ErrDoubt
			}
		}
		if p.err != nil {
			return 0, nil, fmt.Errorf("it is not known what readers have seen: %w", p.err)
		}
		tip = aggregate.Revision(fr.Revision)
	}
}
