package segments

import (
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"federator.dev/federator/internal/frames"
)

// chunk is what is known of a frame of entries without reading it.
type chunk struct {
	offset       int64
	size         uint32
	first, last  uint64
	since, until int64               // in milliseconds
	subjects     [][numFacets]uint32 // hashes of their facets
}

// hashes are those of a subject's facets.
func (s *subject) hashes() (h [numFacets]uint32) {
	for f, value := range s {
		h[f] = hashOf(f, value)
	}
	return h
}

// mayHave reports whether a chunk may have an entry about a subject, of which these are the hashes.
func (c *chunk) mayHave(about *subject, hashes *[numFacets]uint32) bool {
	return slices.ContainsFunc(c.subjects, func(s [numFacets]uint32) bool {
		for f, value := range about {
			if value != "" && s[f] != hashes[f] {
				return false
			}
		}
		return true
	})
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// add takes note of a chunk.
func (s *segment) add(c chunk, content int64) {
	if s.last < s.first {
		s.since, s.until = c.since, c.until
	}
	s.chunks = append(s.chunks, c)
	s.last, s.since, s.until = c.last, min(s.since, c.since), max(s.until, c.until)
	s.bytes, s.content = max(s.bytes, c.offset+int64(c.size)), s.content+content
}

// unsealedState is what else is found in an unsealed segment.
type unsealedState struct {
	id     string
	boot   string
	closed bool  // it ends with a mark that all before it is on disk
	end    error // why reading ended: io.EOF, or torn, or doubt
	offset int64 // of the end of the last frame
}

// openUnsealed opens an unsealed segment, and reads it up to where it is not as it was written.
func openUnsealed(path string, key []byte, first uint64) (s *segment, state unsealedState, err error) {
	s = &segment{path: path, first: first, last: first - 1}
	s.refs.Store(1)
	if s.file, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0); errors.Is(err, os.ErrPermission) {
		s.file, err = os.Open(path) // it is not appended to any more
	}
	if err != nil {
		return nil, state, err
	}
	info, err := s.file.Stat()
	if err != nil {
		s.file.Close()
		return nil, state, err
	}
	s.bytes = info.Size()
	s.since, s.until = info.ModTime().UnixMilli(), info.ModTime().UnixMilli()
	r := frames.NewReader(io.NewSectionReader(s.file, 0, s.bytes))
	h, err := readHeader(r, key, header{Type: unsealedType, First: first})
	state.id, state.boot = h.Log, h.Boot
	if err != nil {
		s.damaged, state.end = err, err
		return s, state, nil
	}
	s.seal = r.Seal
	s.scan(r, &state)
	if ioError(state.end) {
		s.file.Close()
		return nil, state, state.end
	}
	return s, state, nil
}

func ended(err error) bool { return errors.Is(err, io.EOF) }

func torn(err error) bool {
	var t *frames.TornError
	return errors.As(err, &t)
}

// ioError reports whether an error is of reading a file, not of what is in it.
func ioError(err error) bool { return !ended(err) && !torn(err) && !errors.Is(err, frames.ErrDoubt) }

// scan reads the frames after the header.
func (s *segment) scan(r *frames.Reader, state *unsealedState) {
	r.Limit = maxBlockBytes + 64
	var b block
	state.offset = r.Offset()
	for {
		f, err := r.Next()
		if err == nil {
			switch f.Kind {
			case typeClosed:
				state.closed = true
			case typeResumed:
				state.closed, state.boot = false, string(f.Payload)
			case typeEntries:
				state.closed = false
				err = s.scanEntries(&b, f, state.offset, r.Offset())
			default:
				err = frames.ErrDoubt
			}
		}
		if err != nil {
			state.end = err
			return
		}
		state.offset = r.Offset()
	}
}

// scanEntries takes note of a frame of entries.
func (s *segment) scanEntries(b *block, f frames.Frame, from, to int64) error {
	if err := b.decode(f.Payload, &subject{}); err != nil {
		return err
	}
	c, err := chunkOf(b, s.last)
	if err != nil || f.Revision != c.first || c.last >= s.first+maxPositions {
		return frames.ErrDoubt
	}
	c.offset, c.size = from, uint32(to-from)
	content := int64(0)
	for i := range b.subjects {
		content += int64(b.subjects[i].bytes())
	}
	for i := range b.rows {
		content += int64(len(b.rows[i].payload)) + rowBytes
	}
	s.add(c, content)
	return nil
}

// chunkOf is what is to be known of a block of entries, which come after a position.
func chunkOf(b *block, last uint64) (c chunk, err error) {
	if len(b.rows) == 0 {
		return c, frames.ErrDoubt
	}
	c = chunk{first: b.rows[0].position, since: b.rows[0].time, until: b.rows[0].time}
	for i := range b.rows {
		r := &b.rows[i]
		if r.position <= last {
			return c, frames.ErrDoubt
		}
		last, c.since, c.until = r.position, min(c.since, r.time), max(c.until, r.time)
	}
	c.last = last
	c.subjects = make([][numFacets]uint32, len(b.subjects))
	for i := range b.subjects {
		c.subjects[i] = b.subjects[i].hashes()
	}
	return c, nil
}
