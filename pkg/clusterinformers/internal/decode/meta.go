package decode

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unsafe"

	"federator.dev/federator/pkg/aggregate"
)

// reader walks canonical JSON, which it trusts to be well formed.
type reader struct {
	in  []byte
	pos int
}

// identity fills rec with what the metadata that begins at b[at] says. Its
// strings alias b. A field of the wrong type counts as absent.
func identity(b []byte, at int, rec *aggregate.Record) {
	rec.Namespace, rec.Name, rec.UID, rec.ResourceVersion = "", "", "", ""
	rec.Labels, rec.Owners = rec.Labels[:0], rec.Owners[:0]
	if at < 0 || b[at] != '{' {
		return
	}
	r := reader{b, at}
	for r.member() {
		switch key := r.key(); string(key) {
		case "name":
			rec.Name = r.text()
		case "namespace":
			rec.Namespace = r.text()
		case "uid":
			rec.UID = r.text()
		case "resourceVersion":
			rec.ResourceVersion = r.text()
		case "labels":
			rec.Labels = r.labels(rec.Labels)
		case "ownerReferences":
			rec.Owners = r.owners(rec.Owners)
		default:
			r.skip()
		}
	}
}

// member enters an object or array, or goes on to its next element; it reports
// false at its end, behind which it then stands.
func (r *reader) member() bool {
	switch c := r.in[r.pos]; c {
	case '{', '[':
		r.pos++
		if r.in[r.pos] == c+2 {
			r.pos++
			return false
		}
		return true
	case ',':
		r.pos++
		return true
	default:
		r.pos++
		return false
	}
}

// key reads a member's key, which canon lets through only without escapes, and
// the colon. The keys of the fall-back may hold them: such a key equals none
// that is looked for.
func (r *reader) key() []byte {
	key := r.quoted()
	return key[1 : len(key)-1]
}

// quoted is key with its quotes.
func (r *reader) quoted() []byte {
	start := r.pos
	r.skip()
	key := r.in[start:r.pos]
	r.pos++
	return key
}

// text reads a string; "" for any other value.
func (r *reader) text() string {
	start := r.pos
	r.skip()
	if r.in[start] != '"' {
		return ""
	}
	return unquote(r.in[start:r.pos])
}

// unquote returns the string that canonical JSON b stands for. It aliases b,
// and lives as long as the decoder's buffer holds it, unless b has escapes.
func unquote(b []byte) string {
	if bytes.IndexByte(b, '\\') >= 0 {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			panic("decode: invalid string in canonical JSON: " + err.Error())
		}
		return s
	}
	b = b[1 : len(b)-1]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (r *reader) labels(into []aggregate.Label) []aggregate.Label {
	if r.in[r.pos] != '{' {
		r.skip()
		return into
	}
	valid, sorted := true, true
	for r.member() {
		start := r.pos
		r.skip()
		l := aggregate.Label{Key: unquote(r.in[start:r.pos])}
		r.pos++
		switch r.in[r.pos] {
		case '"':
			l.Value = r.text()
		case 'n': // null counts as ""
			r.skip()
		default:
			valid = false
			r.skip()
		}
		sorted = sorted && (len(into) == 0 || into[len(into)-1].Key < l.Key)
		into = append(into, l)
	}
	if !valid {
		return into[:0]
	}
	if !sorted {
		slices.SortFunc(into, func(a, b aggregate.Label) int { return strings.Compare(a.Key, b.Key) })
	}
	return into
}

func (r *reader) owners(into []aggregate.Owner) []aggregate.Owner {
	if r.in[r.pos] != '[' {
		r.skip()
		return into
	}
	valid := true
	for r.member() {
		if r.in[r.pos] != '{' {
			valid = false
			r.skip()
			continue
		}
		var o aggregate.Owner
		for r.member() {
			switch string(r.key()) {
			case "apiVersion":
				o.APIVersion = r.text()
			case "kind":
				o.Kind = r.text()
			case "name":
				o.Name = r.text()
			case "uid":
				o.UID = r.text()
			case "controller":
				o.Controller = r.in[r.pos] == 't'
				r.skip()
			default:
				r.skip()
			}
		}
		into = append(into, o)
	}
	if !valid {
		return into[:0]
	}
	return into
}

// skip passes one value.
func (r *reader) skip() {
	in, i := r.in, r.pos
	depth := 0
	for {
		switch in[i] {
		case '"':
			i = endOfString(in, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':':
			i++
		default:
			for i < len(in) && in[i] != ',' && in[i] != '}' && in[i] != ']' {
				i++
			}
		}
		if depth == 0 {
			r.pos = i
			return
		}
	}
}

// endOfString returns the index behind the string that begins at in[i].
func endOfString(in []byte, i int) int {
	for i++; ; {
		i = plain(in, i)
		switch c := in[i]; c {
		case '"':
			return i + 1
		case '\\':
			i += 2
		default:
			i++
		}
	}
}
