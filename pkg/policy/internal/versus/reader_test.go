package versus

import (
	"strconv"
	"unsafe"

	"federator.dev/federator/internal/canonjson"
)

// reader walks through stored bytes, once. What the body of a loop over fields or items
// leaves unread is skipped.
type reader struct{ canonjson.Reader }

func newReader(body []byte) *reader { return &reader{canonjson.NewReader(body)} }

// fields steps through the object that is next, and stops at the value of each key.
func (r *reader) fields(yield func(key string) bool) {
	if r.Peek() != '{' {
		r.Skip()
		return
	}
	for more := r.Open('{'); more; more = r.Next('}') {
		key, _ := r.Key()
		at := r.Pos()
		if !yield(unsafe.String(unsafe.SliceData(key), len(key))) {
			return
		}
		if r.Pos() == at {
			r.Skip()
		}
	}
}

// items steps through the array that is next, and stops at each element.
func (r *reader) items(yield func() bool) {
	if r.Peek() != '[' {
		r.Skip()
		return
	}
	for more := r.Open('['); more; more = r.Next(']') {
		at := r.Pos()
		if !yield() {
			return
		}
		if r.Pos() == at {
			r.Skip()
		}
	}
}

// to steps to the value that a path leads to, and reports whether there is one: if there is
// none, there is nothing else to read either.
func (r *reader) to(path ...string) bool {
next:
	for _, name := range path {
		for key := range r.fields {
			if key == name {
				continue next
			}
		}
		return false
	}
	return true
}

// text reads a string, which aliases the body mostly. Anything else stays unread.
func (r *reader) text() (string, bool) {
	if r.Peek() != '"' {
		return "", false
	}
	raw, escaped := r.Text()
	if escaped {
		s, err := canonjson.Unquote(raw)
		return s, err == nil
	}
	return unsafe.String(unsafe.SliceData(raw), len(raw)), true
}

// name reads the name of a container or a volume.
func (r *reader) name() string {
	if name, ok := r.text(); ok {
		return name
	}
	return unnamed
}

// is reports whether a string is next.
func (r *reader) is(text string) bool {
	s, ok := r.text()
	return ok && s == text
}

// textAt reads an object and returns one of its strings.
func (r *reader) textAt(name string) (s string, ok bool) {
	for key := range r.fields {
		if key == name {
			s, ok = r.text()
		}
	}
	return s, ok
}

// int reads a number that is an integer.
func (r *reader) int() (int, bool) {
	if c := r.Peek(); c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	raw := r.Number()
	n, err := strconv.Atoi(unsafe.String(unsafe.SliceData(raw), len(raw)))
	return n, err == nil
}

// holds reports whether what is next is a value that a condition takes for true.
func (r *reader) holds() bool { return r.Peek() != 'f' }

// isTrue reports whether the boolean true is next.
func (r *reader) isTrue() bool { return r.Peek() == 't' }

// toPod steps to the spec of the Pod or of the template, and reports whether there is one
// that was not made from a template.
func (r *reader) toPod(s *subject) bool {
	for key := range r.fields {
		switch key {
		case "metadata":
			if (s.kind == "Pod" || s.kind == "Job.batch") && r.templated(s.kind) {
				return false
			}
		case "spec":
			switch s.kind {
			case "Pod":
				return true
			case "CronJob.batch":
				return r.to("jobTemplate", "spec", "template", "spec")
			}
			return r.to("template", "spec")
		}
	}
	return false
}

// templated reads metadata and reports whether its owner is one whose template is evaluated.
func (r *reader) templated(kind string) bool {
	hash, known, made := false, false, false
	for key := range r.fields {
		switch key {
		case "labels":
			for key := range r.fields {
				if key == "pod-template-hash" {
					hash = r.holds()
				}
			}
		case "ownerReferences":
			for range r.items {
				if known {
					continue
				}
				var version, owner string
				for key := range r.fields {
					switch key {
					case "apiVersion":
						version, _ = r.text()
					case "controller":
						known = r.isTrue()
					case "kind":
						owner, _ = r.text()
					}
				}
				made = known && hasTemplate(kind, version, owner, hash)
			}
		}
	}
	return made
}
