package segments

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"federator.dev/federator/internal/frames"
)

// A block is some entries:
//
//	number of entries, number of subjects    uvarints
//	subjects, each of six facets: how many bytes it has in common with the one before, how many
//	  follow, and these; UIDs are 16 bytes where they are UUIDs
//	five columns of varints, differences to the entry before but for the last: subject, position,
//	  time in milliseconds, revision, length of the payload
//	payloads
//
// Blocks are what frames of unsealed segments have, and, sorted and compressed, those of sealed ones.

// blockBytes is from how many bytes on a block is full.
const blockBytes = 64 << 10

// rowBytes is what an entry counts for besides its payload and its facets.
const rowBytes = 16

// maxBlockBytes bounds a block: a full one, whose numbers are as long as they can be, and the largest
// entry.
const maxBlockBytes = 5*blockBytes + MaxPayload + numFacets*MaxFacet

// Facets of a subject.
const (
	facetMember = iota
	facetKind
	facetNamespace
	facetName
	facetUID
	facetPolicy
	numFacets
)

// subject is what an entry is about.
type subject [numFacets]string

func subjectOf(e *Entry) subject {
	return subject{e.Member, e.Kind, e.Namespace, e.Name, e.UID, e.Policy}
}

func (s *subject) bytes() (n int) {
	for _, f := range s {
		n += len(f)
	}
	return n
}

// row is an entry of a block.
type row struct {
	subject  uint32
	position uint64
	time     int64 // in milliseconds
	revision int64
	payload  []byte
}

// blockWriter collects the entries of a block.
type blockWriter struct {
	subjects []subject
	numbers  map[subject]uint32
	rows     []row
	bytes    int // of payloads and facets, with rowBytes for each entry
}

func (w *blockWriter) reset() {
	clear(w.subjects)
	clear(w.rows)
	clear(w.numbers)
	w.subjects, w.rows, w.bytes = w.subjects[:0], w.rows[:0], 0
}

// add adds an entry; its payload is kept until the block is reset.
func (w *blockWriter) add(s *subject, r row) {
	n := len(w.subjects)
	switch {
	case n > 0 && w.subjects[n-1] == *s:
		r.subject = uint32(n - 1)
	default:
		number, ok := w.numbers[*s]
		if !ok {
			if w.numbers == nil {
				w.numbers = map[subject]uint32{}
			}
			number = uint32(n)
			w.numbers[*s] = number
			w.subjects = append(w.subjects, *s)
			w.bytes += s.bytes()
		}
		r.subject = number
	}
	w.rows = append(w.rows, r)
	w.bytes += len(r.payload) + rowBytes
}

func (w *blockWriter) full() bool { return w.bytes >= blockBytes }

// append appends the block.
func (w *blockWriter) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(w.rows)))
	dst = binary.AppendUvarint(dst, uint64(len(w.subjects)))
	var before subject
	for i := range w.subjects {
		s := &w.subjects[i]
		for f := range s {
			if f == facetUID {
				dst = appendUID(dst, s[f])
				continue
			}
			dst = appendShared(dst, before[f], s[f])
		}
		before = *s
	}
	last := row{}
	for i := range w.rows {
		dst = binary.AppendVarint(dst, int64(w.rows[i].subject)-int64(last.subject))
		last = w.rows[i]
	}
	last = row{}
	for i := range w.rows {
		dst = binary.AppendVarint(dst, int64(w.rows[i].position-last.position))
		last = w.rows[i]
	}
	last = row{}
	for i := range w.rows {
		dst = binary.AppendVarint(dst, w.rows[i].time-last.time)
		last = w.rows[i]
	}
	last = row{}
	for i := range w.rows {
		dst = binary.AppendVarint(dst, w.rows[i].revision-last.revision)
		last = w.rows[i]
	}
	for i := range w.rows {
		dst = binary.AppendUvarint(dst, uint64(len(w.rows[i].payload)))
	}
	for i := range w.rows {
		dst = append(dst, w.rows[i].payload...)
	}
	return dst
}

// appendShared appends a text without what it has in common with the one before.
func appendShared(dst []byte, before, text string) []byte {
	n := 0
	for n < len(before) && n < len(text) && before[n] == text[n] {
		n++
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	dst = binary.AppendUvarint(dst, uint64(len(text)-n))
	return append(dst, text[n:]...)
}

const uuidText = 36

// appendUID appends a UID: its length and one, or 0 and the 16 bytes of a UUID.
func appendUID(dst []byte, uid string) []byte {
	if len(uid) == uuidText {
		var b [16]byte
		if parseUUID(&b, uid) {
			return append(append(dst, 0), b[:]...)
		}
	}
	return append(binary.AppendUvarint(dst, uint64(len(uid))+1), uid...)
}

// parseUUID parses the form in which Kubernetes writes UUIDs, in which there is one text for each.
func parseUUID(dst *[16]byte, s string) bool {
	at := 0
	for i := 0; i < uuidText; i++ {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return false
			}
			continue
		}
		hi, lo := nibble(s[i]), nibble(s[i+1])
		if hi > 15 || lo > 15 {
			return false
		}
		dst[at] = hi<<4 | lo
		at++
		i++
	}
	return true
}

func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

func appendUUID(dst, b []byte) []byte {
	for i, n := range [...]int{4, 2, 2, 2, 6} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, b[:n])
		b = b[n:]
	}
	return dst
}

// block decodes blocks, one after the other.
type block struct {
	subjects []subject // those that are asked for; the others are empty
	rows     []row     // those of these subjects; payloads are in what was decoded
	kept     []bool    // by subject
	text     [numFacets][]byte

	numbersOnly bool // subjects are known already: they are not decoded
}

// decode decodes a block, and keeps of it what is about a subject: facets that are "" match all.
func (b *block) decode(in []byte, about *subject) error {
	c := cursor{b: in}
	rows, subjects := c.uvarint(), c.uvarint()
	// Each row has five bytes at least, each subject eleven, and a row.
	if c.bad || rows > uint64(c.rest()/5) || subjects > uint64(c.rest()/11) || subjects > rows {
		return fmt.Errorf("block of %d entries: %w", rows, frames.ErrDoubt)
	}
	if b.decodeSubjects(&c, int(subjects), about); c.bad {
		return fmt.Errorf("subjects of a block: %w", frames.ErrDoubt)
	}
	if b.decodeRows(&c, int(rows)); c.bad {
		return fmt.Errorf("entries of a block: %w", frames.ErrDoubt)
	}
	return nil
}

func (b *block) decodeSubjects(c *cursor, n int, about *subject) {
	clear(b.subjects)
	b.subjects, b.kept = b.subjects[:0], b.kept[:0]
	for f := range b.text {
		b.text[f] = b.text[f][:0]
	}
	var before *subject // the last that was kept
	room := maxBlockBytes
	for range n {
		matches := true
		for f := range b.text {
			b.text[f] = c.facet(b.text[f], f)
			room -= len(b.text[f])
			matches = matches && (about[f] == "" || about[f] == string(b.text[f]))
		}
		if c.bad = c.bad || room < 0; c.bad {
			return
		}
		b.subjects, b.kept = append(b.subjects, subject{}), append(b.kept, matches)
		if !matches || b.numbersOnly {
			continue
		}
		s := &b.subjects[len(b.subjects)-1]
		for f := range s {
			if before != nil && before[f] == string(b.text[f]) {
				s[f] = before[f]
			} else {
				s[f] = string(b.text[f])
			}
		}
		before = s
	}
}

func (b *block) decodeRows(c *cursor, n int) {
	if cap(b.rows) < n {
		b.rows = make([]row, n)
	}
	clear(b.rows)
	rows := b.rows[:n]
	var r row
	for i := range rows {
		r.subject += uint32(c.varint())
		if int(r.subject) >= len(b.subjects) {
			c.bad = true
			return
		}
		rows[i].subject = r.subject
	}
	for i := range rows {
		r.position += uint64(c.varint())
		rows[i].position = r.position
	}
	for i := range rows {
		r.time += c.varint()
		rows[i].time = r.time
	}
	for i := range rows {
		r.revision += c.varint()
		rows[i].revision = r.revision
	}
	lengths, total := c.at, uint64(0)
	for range rows {
		length := c.uvarint()
		if total += length; length > MaxPayload || total > uint64(c.rest()) {
			c.bad = true
			return
		}
	}
	if c.bad || total != uint64(c.rest()) {
		c.bad = true
		return
	}
	at, payloads := cursor{b: c.b, at: lengths}, c.b[c.at:]
	b.rows = rows[:0]
	for i := range rows {
		length := at.uvarint()
		if b.kept[rows[i].subject] {
			rows[i].payload = payloads[:length:length]
			b.rows = append(b.rows, rows[i])
		}
		payloads = payloads[length:]
	}
}
