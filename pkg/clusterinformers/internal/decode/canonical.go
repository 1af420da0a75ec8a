package decode

import (
	"bytes"
	"slices"
)

// maxNesting is the depth above which the standard path, with its own bound, is used. Real
// objects are less than 60 deep.
const maxNesting = 200

// role is the object of a document that is being read.
type role uint8

const (
	inner    role = iota
	root          // the object itself: apiVersion and kind are added if absent
	metadata      // its metadata: managedFields is cut
)

// member is one member of an object in the output: offsets of its key's
// opening quote, of its value and of its end.
type member struct{ start, value, end int }

// canonicalizer writes JSON in canonical form. Its methods report false for anything that it
// does not handle, including malformed input; the output is then invalid.
type canonicalizer struct {
	in  []byte
	pos int
	out []byte

	depth   int
	members []member // stack: those of the objects being read
	sorted  []byte   // an object being sorted

	apiVersion, kind []byte // members for a root that lacks them: "kind":"Pod"
	meta             int    // start of the root's metadata in out; -1 if it has none
	foreign          bool   // the root has another apiVersion or kind
}

func (c *canonicalizer) space() {
	for c.pos < len(c.in) {
		switch c.in[c.pos] {
		case ' ', '\t', '\r', '\n':
			c.pos++
		default:
			return
		}
	}
}

// next skips white space and returns the next byte without consuming it; 0 at the end.
func (c *canonicalizer) next() byte {
	if c.pos < len(c.in) && c.in[c.pos] > ' ' {
		return c.in[c.pos]
	}
	c.space()
	if c.pos < len(c.in) {
		return c.in[c.pos]
	}
	return 0
}

// document writes the one value that in holds.
func (c *canonicalizer) document(in []byte, r role) bool {
	c.in, c.pos, c.depth, c.members = in, 0, 0, c.members[:0]
	return c.value(r) && c.next() == 0 && c.pos == len(c.in)
}

func (c *canonicalizer) value(r role) bool {
	switch b := c.next(); b {
	case '{':
		return c.object(r)
	case '[':
		return r != root && c.array()
	case '"':
		return r != root && c.str()
	case 't':
		return r != root && c.literal("true")
	case 'f':
		return r != root && c.literal("false")
	case 'n':
		return r != root && c.literal("null")
	default:
		return r != root && c.number()
	}
}

func (c *canonicalizer) literal(s string) bool {
	if len(c.in)-c.pos < len(s) || string(c.in[c.pos:c.pos+len(s)]) != s {
		return false
	}
	c.pos += len(s)
	c.out = append(c.out, s...)
	return true
}

func (c *canonicalizer) number() bool {
	end, integer := scanNumber(c.in, c.pos)
	num := c.in[c.pos:end]
	if len(num) == 0 {
		return false
	}
	c.pos = end
	if integer && len(num) <= 18 && string(num) != "-0" {
		c.out = append(c.out, num...)
		return true
	}
	var ok bool
	c.out, ok = appendNumber(c.out, num, integer)
	return ok
}

// str copies a string in spans, rewriting only escapes that are not canonical.
func (c *canonicalizer) str() bool {
	in, start := c.in, c.pos
	i := start + 1
	for {
		i = plain(in, i)
		if i >= len(in) {
			return false
		}
		switch b := in[i]; {
		case b == '"':
			c.pos = i + 1
			c.out = append(c.out, in[start:c.pos]...)
			return true
		case b == '\\':
			n := c.escape(in[start:i], in[i:])
			if n == 0 {
				return false
			}
			i += n
			start = i
		case b < 0x20:
			return false
		default:
			r, size := decodeRune(in[i:])
			if size == 0 {
				return false
			}
			if r == '\u2028' || r == '\u2029' {
				c.out = append(c.out, in[start:i]...)
				c.out = appendRune(c.out, r)
				start = i + size
			}
			i += size
		}
	}
}

// escape writes before and the escape at the start of b, and returns the escape's length, 0
// if there is none.
func (c *canonicalizer) escape(before, b []byte) int {
	if len(b) < 2 {
		return 0
	}
	c.out = append(c.out, before...)
	switch b[1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		c.out = append(c.out, '\\', b[1])
		return 2
	case '/':
		c.out = append(c.out, '/')
		return 2
	}
	r, n := unicodeEscape(b)
	if n > 0 {
		c.out = appendRune(c.out, r)
	}
	return n
}

func (c *canonicalizer) array() bool {
	if c.depth++; c.depth > maxNesting {
		return false
	}
	c.pos++
	c.out = append(c.out, '[')
	if c.next() == ']' {
		c.pos++
		c.depth--
		c.out = append(c.out, ']')
		return true
	}
	for {
		if !c.value(inner) {
			return false
		}
		switch c.next() {
		case ',':
			c.pos++
			c.out = append(c.out, ',')
		case ']':
			c.pos++
			c.depth--
			c.out = append(c.out, ']')
			return true
		default:
			return false
		}
	}
}

func (c *canonicalizer) object(r role) bool {
	if c.depth++; c.depth > maxNesting {
		return false
	}
	c.pos++
	base, start := len(c.members), len(c.out)
	c.out = append(c.out, '{')
	ordered, ok := c.fill(r, base)
	if !ok {
		return false
	}
	if r == root {
		ordered = c.identify(base) && ordered
	}
	if !ordered && !c.sort(start, base) {
		return false
	}
	c.out = append(c.out, '}')
	if r == root {
		c.meta = -1
		for _, m := range c.members[base:] {
			if string(c.out[m.start:m.value-1]) == `"metadata"` {
				c.meta = m.value
			}
		}
	}
	c.members = c.members[:base]
	c.depth--
	return true
}

// fill reads the members up to the closing brace and reports whether they were in order.
func (c *canonicalizer) fill(r role, base int) (ordered, ok bool) {
	ordered = true
	if c.next() == '}' {
		c.pos++
		return true, true
	}
	for cut := false; ; {
		before := len(c.out)
		if len(c.members) > base {
			c.out = append(c.out, ',')
		}
		m := member{start: len(c.out)}
		if c.next() != '"' || !c.str() || c.next() != ':' {
			return false, false
		}
		c.pos++
		key := c.out[m.start:]
		switch {
		case bytes.IndexByte(key, '\\') >= 0:
			return false, false // the order depends on the unescaped characters
		case r == metadata && string(key) == `"managedFields"`:
			if cut || !c.skip() {
				return false, false
			}
			cut = true
			c.out = c.out[:before]
		default:
			if n := len(c.members); ordered && n > base {
				last := c.members[n-1]
				ordered = bytes.Compare(c.out[last.start+1:last.value-2], key[1:len(key)-1]) < 0
			}
			of := inner
			if r == root && string(key) == `"metadata"` {
				of = metadata
			}
			c.out = append(c.out, ':')
			m.value = len(c.out)
			if !c.memberValue(of) {
				return false, false
			}
			m.end = len(c.out)
			c.members = append(c.members, m)
		}
		switch c.next() {
		case ',':
			c.pos++
		case '}':
			c.pos++
			return ordered, true
		default:
			return false, false
		}
	}
}

// memberValue writes the value of a member. Metadata that is not an object is written, too.
func (c *canonicalizer) memberValue(r role) bool {
	if r == metadata && c.next() == '{' {
		return c.object(metadata)
	}
	return c.value(inner)
}

// identify sets the root's apiVersion and kind if they are absent or not names. It reports
// whether the members are still in order.
func (c *canonicalizer) identify(base int) bool {
	c.foreign = false
	version, kind := -1, -1
	for i, m := range c.members[base:] {
		switch string(c.out[m.start : m.value-1]) {
		case `"apiVersion"`:
			version = base + i
		case `"kind"`:
			kind = base + i
		}
	}
	a := c.name(base, version, c.apiVersion)
	b := c.name(base, kind, c.kind)
	return a && b
}

// name ensures that member i (-1: absent) is a non-empty string, else appends text to the
// output in its place.
func (c *canonicalizer) name(base, i int, text []byte) bool {
	if i >= 0 {
		if m := c.members[i]; c.out[m.value] == '"' && m.end-m.value > 2 {
			c.foreign = c.foreign || !bytes.Equal(c.out[m.start:m.end], text)
			return true
		}
	}
	if len(c.members) > base {
		c.out = append(c.out, ',')
	}
	m := member{start: len(c.out)}
	c.out = append(c.out, text...)
	m.value = m.start + bytes.IndexByte(text, ':') + 1
	m.end = len(c.out)
	if i < 0 {
		c.members = append(c.members, m)
	} else {
		c.members[i] = m
	}
	return false
}

// sort rewrites the object that starts at start in the order of its keys. It reports false
// if a key is repeated.
func (c *canonicalizer) sort(start, base int) bool {
	members := c.members[base:]
	out := c.out
	key := func(m member) []byte { return out[m.start+1 : m.value-2] }
	if len(members) <= 16 {
		for i := 1; i < len(members); i++ {
			for j := i; j > 0 && bytes.Compare(key(members[j]), key(members[j-1])) < 0; j-- {
				members[j], members[j-1] = members[j-1], members[j]
			}
		}
	} else {
		slices.SortFunc(members, func(a, b member) int { return bytes.Compare(key(a), key(b)) })
	}
	for i := 1; i < len(members); i++ {
		if bytes.Equal(key(members[i]), key(members[i-1])) {
			return false
		}
	}
	buf := c.sorted[:0]
	for i, m := range members {
		if i > 0 {
			buf = append(buf, ',')
		}
		at := start + 1 + len(buf)
		buf = append(buf, out[m.start:m.end]...)
		members[i] = member{at, at + m.value - m.start, at + m.end - m.start}
	}
	c.out = append(out[:start+1], buf...)
	c.sorted = buf
	return true
}

// skip reads a value without writing it, as strictly as value.
func (c *canonicalizer) skip() bool {
	switch b := c.next(); b {
	case '{', '[':
		return c.skipNested(b)
	case '"':
		return c.skipString()
	default:
		// Literals and numbers are short: they are written, and then truncated.
		n := len(c.out)
		ok := c.value(inner)
		c.out = c.out[:n]
		return ok
	}
}

func (c *canonicalizer) skipNested(open byte) bool {
	if c.depth++; c.depth > maxNesting {
		return false
	}
	end := open + 2
	c.pos++
	if c.next() == end {
		c.pos++
		c.depth--
		return true
	}
	for {
		if open == '{' {
			if c.next() != '"' || !c.skipString() || c.next() != ':' {
				return false
			}
			c.pos++
		}
		if !c.skip() {
			return false
		}
		switch c.next() {
		case ',':
			c.pos++
		case end:
			c.pos++
			c.depth--
			return true
		default:
			return false
		}
	}
}

func (c *canonicalizer) skipString() bool {
	in := c.in
	for i := plain(in, c.pos+1); i < len(in); i = plain(in, i) {
		switch b := in[i]; {
		case b == '"':
			c.pos = i + 1
			return true
		case b == '\\':
			if i+1 >= len(in) {
				return false
			}
			switch in[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if hex4(in[i+2:]) < 0 {
					return false
				}
				i += 6
			default:
				return false
			}
		case b < 0x20:
			return false
		default:
			i++
		}
	}
	return false
}
