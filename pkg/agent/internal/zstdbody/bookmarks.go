package zstdbody

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// format is how the events of a watch are told apart.
type format int

const (
	unknown  format = iota // bookmarks are passed as they come
	lines                  // JSON
	prefixed               // protobuf, each after its length
)

// formatOf returns the format of a watch by its Content-Type.
func formatOf(contentType string) format {
	switch {
	case strings.HasPrefix(contentType, "application/json"):
		return lines
	case strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf"):
		return prefixed
	}
	return unknown
}

// Events begin so if they are bookmarks, in JSON and, after 4 bytes of length, in protobuf. Any that begins in another
// way, or is longer than maxBookmark, is passed.
var (
	lineOfBookmark   = []byte(`{"type":"BOOKMARK",`)
	prefixOfBookmark = []byte("\x0a\x08BOOKMARK")
	initialEventsEnd = []byte(metav1.InitialEventsAnnotationKey)
)

const (
	lengthBytes = 4
	maxBookmark = 4 << 10
)

// bookmarks finds the bookmarks of a watch, and keeps those back that may wait.
type bookmarks struct {
	format format
	part   []byte    // the beginning of what may be a bookmark
	within bool      // of an event that is passed, and of lines
	left   int       // of an event that is passed, and has its length
	quiet  bool      // the last that was passed is a bookmark
	held   []byte    // a bookmark that waits
	due    time.Time // when it is passed; zero: there is none
}

// filter returns what of p is passed, and what that makes complete of what came before. It overwrites p. A bookmark that
// waits is due at next.
func (b *bookmarks) filter(p []byte, next time.Time) []byte {
	if b.format == unknown {
		return p
	}
	if len(b.part) > 0 {
		p, b.part = append(b.part, p...), nil
	}
	out := p[:0]
	for len(p) > 0 {
		if n := b.passing(p); n > 0 {
			out, p = append(out, p[:n]...), p[n:]
			continue
		}
		n, is := b.look(p)
		switch {
		case !is:
			b.drop()
			b.quiet = false
		case n == 0:
			b.part = bytes.Clone(p)
			return out
		case b.quiet && !bytes.Contains(p[:n], initialEventsEnd):
			b.held, p = append(b.held[:0], p[:n]...), p[n:]
			if b.due.IsZero() {
				b.due = next
			}
		default:
			b.drop()
			b.quiet = true
			out, p = append(out, p[:n]...), p[n:]
		}
	}
	return out
}

// passing returns how much of p is of an event that is passed.
func (b *bookmarks) passing(p []byte) (n int) {
	switch {
	case b.left > 0:
		n = min(b.left, len(p))
		b.left -= n
	case b.within:
		if n = bytes.IndexByte(p, '\n') + 1; n == 0 {
			return len(p)
		}
		b.within = false
	}
	return n
}

// look looks at an event of which p has the beginning. It returns the length of a bookmark, 0 where more of what may be
// one is to come. What is none is passed.
func (b *bookmarks) look(p []byte) (n int, is bool) {
	if b.format == lines {
		n, is = lineLength(p)
		b.within = !is
		return n, is
	}
	if len(p) < lengthBytes {
		return 0, true
	}
	size, rest := int(binary.BigEndian.Uint32(p)), p[lengthBytes:]
	begins := rest[:min(len(rest), len(prefixOfBookmark))]
	if size < len(prefixOfBookmark) || size > maxBookmark || !bytes.HasPrefix(prefixOfBookmark, begins) {
		b.left = lengthBytes + size
		return 0, false
	}
	if len(rest) < size {
		return 0, true
	}
	return lengthBytes + size, true
}

// lineLength is look for a line.
func lineLength(p []byte) (n int, is bool) {
	if len(p) < len(lineOfBookmark) {
		return 0, bytes.HasPrefix(lineOfBookmark, p)
	}
	if !bytes.HasPrefix(p, lineOfBookmark) {
		return 0, false
	}
	n = bytes.IndexByte(p[:min(len(p), maxBookmark)], '\n') + 1
	if n == 0 {
		return 0, len(p) < maxBookmark
	}
	return n, json.Valid(p[:n])
}

// take returns what waits.
func (b *bookmarks) take() []byte {
	held := b.held
	b.drop()
	return held
}

// rest returns all that has not been passed, once nothing is to come.
func (b *bookmarks) rest() []byte { return append(b.take(), b.part...) }

func (b *bookmarks) drop() { b.held, b.due = nil, time.Time{} }
