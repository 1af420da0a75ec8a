package decode

import (
	"slices"
	"strings"
	"unsafe"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/aggregate"
)

// reader reads canonical JSON, which must be well formed: the decoder wrote it.
type reader struct{ canonjson.Reader }

func readerOf(b []byte) reader { return reader{canonjson.NewReader(b)} }

// identity fills rec from the metadata that starts at b[at]. Its strings alias b. A field of
// the wrong type counts as absent.
func identity(b []byte, at int, rec *aggregate.Record) {
	rec.Namespace, rec.Name, rec.UID, rec.ResourceVersion = "", "", "", ""
	rec.Labels, rec.Owners = rec.Labels[:0], rec.Owners[:0]
	if at < 0 || b[at] != '{' {
		return
	}
	r := readerOf(b[at:])
	for more := r.Open('{'); more; more = r.Next('}') {
		// The keys of the standard path may have escapes: such a key equals none.
		switch key, _ := r.Key(); string(key) {
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
			r.Skip()
		}
	}
}

// key reads a key, and returns it raw and unquoted.
func (r *reader) key() (raw []byte, name string) {
	raw, escaped := r.Key()
	return raw, unquote(raw, escaped)
}

// text reads a string; "" for any other value.
func (r *reader) text() string {
	if r.Peek() != '"' {
		r.Skip()
		return ""
	}
	return unquote(r.Text())
}

// unquote returns the string that is written as raw between its quotes. It aliases
// raw, and lives as long as the decoder's buffer holds it, unless it has escapes.
func unquote(raw []byte, escaped bool) string {
	if escaped {
		s, err := canonjson.Unquote(raw)
		if err != nil {
			panic("decode: invalid string in canonical JSON: " + err.Error())
		}
		return s
	}
	return unsafe.String(unsafe.SliceData(raw), len(raw))
}

func (r *reader) labels(into []aggregate.Label) []aggregate.Label {
	if r.Peek() != '{' {
		r.Skip()
		return into
	}
	valid, sorted := true, true
	for more := r.Open('{'); more; more = r.Next('}') {
		_, name := r.key()
		l := aggregate.Label{Key: name}
		switch r.Peek() {
		case '"':
			l.Value = r.text()
		case 'n': // null counts as ""
			r.Skip()
		default:
			valid = false
			r.Skip()
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
	if r.Peek() != '[' {
		r.Skip()
		return into
	}
	valid := true
	for more := r.Open('['); more; more = r.Next(']') {
		if r.Peek() != '{' {
			valid = false
			r.Skip()
			continue
		}
		into = append(into, r.owner())
	}
	if !valid {
		return into[:0]
	}
	return into
}

func (r *reader) owner() (o aggregate.Owner) {
	for more := r.Open('{'); more; more = r.Next('}') {
		switch key, _ := r.Key(); string(key) {
		case "apiVersion":
			o.APIVersion = r.text()
		case "kind":
			o.Kind = r.text()
		case "name":
			o.Name = r.text()
		case "uid":
			o.UID = r.text()
		case "controller":
			o.Controller = r.Peek() == 't'
			r.Skip()
		default:
			r.Skip()
		}
	}
	return o
}
