package segments

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"federator.dev/federator/internal/frames"
)

// keyInfo is what keys of files are derived for.
const keyInfo = "federator history v1"

const formatVersion = 1

// maxPositions bounds how many positions an unsealed segment gives out: after a loss it is known
// that none beyond was.
const maxPositions = 1 << 20

// maxHeader bounds the header of a file.
const maxHeader = 64 << 10

// Names of files are the first position, and the last of those that are sealed, in hexadecimal.
const (
	unsealedSuffix  = ".log"
	sealedSuffix    = ".sealed"
	temporarySuffix = ".tmp"
)

// Types of frames.
const (
	typeEntries   byte = 'e' // a block that is not compressed; its revision is the first position
	typeClosed    byte = 'C' // all that was appended before is on disk
	typeResumed   byte = 'R' // appended to again, in the boot that is the payload
	typeBlock     byte = 'b' // of a sealed segment, compressed; its revision is its number
	typePage      byte = 'i' // of the index; its revision is its number
	typeDirectory byte = 'd'
	typeEnd       byte = 'E' // where the directory is
)

// Types of files.
const (
	unsealedType = "unsealed"
	sealedType   = "sealed"
)

// header is what a file begins with.
type header struct {
	Format int    `json:"format"`
	Type   string `json:"type"`
	Log    string `json:"log"` // whose it is
	First  uint64 `json:"first"`
	Last   uint64 `json:"last,omitempty"` // of a sealed segment
	Boot   string `json:"boot,omitempty"`
	Salt   []byte `json:"salt"`
	Sealed bool   `json:"encrypted,omitempty"`
}

func unsealedName(first uint64) string { return fmt.Sprintf("%016x%s", first, unsealedSuffix) }

func sealedName(first, last uint64) string {
	return fmt.Sprintf("%016x-%016x%s", first, last, sealedSuffix)
}

// parseName returns which positions a file has; last is 0 where its name does not say it.
func parseName(name string) (first, last uint64, ok bool) {
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 16, 53)
		if err != nil {
			return 0
		}
		return n
	}
	if s, found := strings.CutSuffix(name, unsealedSuffix); found {
		first = number(s)
		return first, 0, first > 0 && name == unsealedName(first)
	}
	s, found := strings.CutSuffix(name, sealedSuffix)
	if !found {
		return 0, 0, false
	}
	from, to, _ := strings.Cut(s, "-")
	first, last = number(from), number(to)
	return first, last, first > 0 && last >= first && last-first < maxPositions && name == sealedName(first, last)
}

// createFile makes a file with a header.
func createFile(path string, key []byte, h header) (*frames.File, error) {
	h.Format, h.Salt, h.Sealed = formatVersion, frames.NewSalt(), len(key) > 0
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return frames.Create(path, key, text, h.Salt, keyInfo)
}

// readHeader reads the header of a file, and leaves what comes after it to be read.
func readHeader(r *frames.Reader, key []byte, want header) (h header, err error) {
	limit := r.Limit
	r.Limit = maxHeader
	defer func() { r.Limit = limit }()
	f, err := r.Next()
	if err != nil {
		return h, fmt.Errorf("header: %w", err)
	}
	if f.Kind != frames.TypeHeader || json.Unmarshal(f.Payload, &h) != nil || len(h.Salt) != frames.SaltBytes {
		return h, fmt.Errorf("header: %w", frames.ErrDoubt)
	}
	switch {
	case h.Format != formatVersion:
		return h, fmt.Errorf("format %d, not %d: %w", h.Format, formatVersion, frames.ErrDoubt)
	case h.Type != want.Type || h.First != want.First || h.Last != want.Last:
		return h, fmt.Errorf("it is the %s segment of positions %d to %d: %w", h.Type, h.First, h.Last, frames.ErrDoubt)
	case h.Sealed != (len(key) > 0):
		return h, fmt.Errorf("encrypted: %t, configured: %t: %w", h.Sealed, len(key) > 0, frames.ErrDoubt)
	}
	if r.Seal, err = frames.NewSealer(key, h.Salt, f.Payload, keyInfo); err != nil || r.Seal == nil {
		return h, err
	}
	if f, err = r.Next(); err == nil && f.Kind != frames.TypeProof {
		err = frames.ErrDoubt
	}
	if err != nil {
		err = fmt.Errorf("header: %w", err)
	}
	return h, err
}

// segment is a file of the log. Its fields up to refs do not change; Log.mu guards the rest. Once it
// is not in the log any more it is closed when its last reader has ended.
type segment struct {
	path    string
	first   uint64
	file    *os.File // nil: it cannot be read
	seal    *frames.Sealer
	sealed  *directory // nil: unsealed
	damaged error      // why nothing of it is read

	refs atomic.Int32

	last         uint64  // first-1 where it has none
	since, until int64   // the least and the greatest time, in milliseconds
	bytes        int64   // of the file
	content      int64   // what the entries count for, of one that is unsealed
	chunks       []chunk // of one that is unsealed; what is in it does not change
	full         bool    // nothing is appended to it any more
	unsealable   bool    // a chunk is not as it was written
}

func (s *segment) isSealed() bool { return filepath.Ext(s.path) == sealedSuffix }

// acquire keeps a segment from being closed. The caller holds Log.mu, and the segment is in the log.
func (s *segment) acquire() { s.refs.Add(1) }

func (s *segment) release() {
	if s.refs.Add(-1) == 0 && s.file != nil {
		s.file.Close()
	}
}

// hole is what is missing before a segment, which comes after positions and times.
func (s *segment) hole(last uint64, until int64) *GapError {
	if s.first <= last+1 {
		return nil
	}
	g := &GapError{From: last + 1, To: s.first - 1, Err: ErrLost}
	g.Entries, g.Since = int(min(g.To-g.From+1, 1<<31)), timeOf(until)
	if s.since > 0 {
		g.Until = timeOf(s.since)
	}
	return g
}

// whole is the gap that a damaged segment is.
func (s *segment) whole() *GapError {
	g := &GapError{From: s.first, To: s.last, Err: fmt.Errorf("%w: %s: %w", ErrLost, filepath.Base(s.path), s.damaged)}
	g.Entries = int(s.last - s.first + 1)
	return g
}

// openSealed opens a sealed segment. Where it is not as it was written it is damaged.
func openSealed(path string, key []byte, first, last uint64) (s *segment, id string, err error) {
	s = &segment{path: path, first: first, last: last}
	s.refs.Store(1)
	if s.file, err = os.Open(path); err != nil {
		return nil, "", err
	}
	info, err := s.file.Stat()
	if err != nil {
		s.file.Close()
		return nil, "", err
	}
	s.bytes = info.Size()
	s.since, s.until = info.ModTime().UnixMilli(), info.ModTime().UnixMilli()
	r := frames.NewReader(io.NewSectionReader(s.file, 0, min(s.bytes, 2*maxHeader)))
	h, err := readHeader(r, key, header{Type: sealedType, First: first, Last: last})
	if err == nil {
		s.seal = r.Seal
		s.sealed, err = readDirectory(s)
	}
	if s.damaged = err; err != nil {
		return s, h.Log, nil
	}
	for i := range s.sealed.blocks {
		b := &s.sealed.blocks[i]
		if i == 0 {
			s.since, s.until = b.since, b.until
		}
		s.since, s.until = min(s.since, b.since), max(s.until, b.until)
	}
	return s, h.Log, nil
}

// endPayload is the length of the last frame's payload: where the directory is, and its size.
const endPayload = 16

// readDirectory reads the directory of a sealed segment.
func readDirectory(s *segment) (*directory, error) {
	size := frames.HeaderBytes + endPayload + s.seal.Overhead()
	f, _, err := frames.ReadAt(s.file, s.seal, max(0, s.bytes-int64(size)), size, nil)
	if err != nil {
		return nil, fmt.Errorf("end: %w", err)
	}
	c := cursor{b: f.Payload}
	at, length := c.fixed(), c.fixed()
	if f.Kind != typeEnd || c.bad || at > uint64(s.bytes) || length > uint64(s.bytes)-at || length < frames.HeaderBytes {
		return nil, fmt.Errorf("end: %w", frames.ErrDoubt)
	}
	if f, _, err = frames.ReadAt(s.file, s.seal, int64(at), int(length), nil); err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	if f.Kind != typeDirectory {
		return nil, fmt.Errorf("directory: %w", frames.ErrDoubt)
	}
	return decodeDirectory(f.Payload, s.last-s.first+1, s.bytes)
}
