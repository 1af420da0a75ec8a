package decode

import (
	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
)

// Rules say what is removed from an object. They change only the body: the rest of the
// record is as the member served it.
type Rules struct {
	// Drop are the paths of fields that are removed, after Redact. They go through objects
	// only.
	Drop [][]string
	// Redact makes the values of data, binaryData and stringData "", cuts the
	// annotation kubectl.kubernetes.io/last-applied-configuration and adds
	// federator.dev/redacted: "true". Annotations that are not all strings are
	// replaced.
	Redact bool
	// Federator says that another federator has served the object: the annotations that it adds are removed, and
	// metadata.resourceVersion is that of the object's own cluster.
	Federator bool
}

const (
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	redactedKey = aggregate.RedactedAnnotation
)

// position is an object that Redact treats specially.
type position uint8

const (
	elsewhere position = iota
	atRoot
	inValues // of data, binaryData and stringData
	inMetadata
	inAnnotations
	places
)

// dropped is a tree of the fields to remove.
type dropped map[string]*drop

type drop struct {
	whole bool
	below dropped
}

// shaper applies rules to canonical JSON and keeps it canonical.
type shaper struct {
	drop      dropped
	redact    bool
	federator bool
	original  []byte // the resourceVersion in the object's own cluster, as JSON; nil: unknown
	// added is the member that is added to an object at a position if absent.
	added [places]string
	out   []byte
}

func newShaper(r Rules) *shaper {
	s := &shaper{drop: dropped{}, redact: r.Redact, federator: r.Federator}
	if r.Federator {
		r.Drop = append([][]string{{"metadata", "annotations", api.MemberKey}, {"metadata", "annotations", api.ResourceVersionKey}}, r.Drop...)
	}
	for _, path := range r.Drop {
		at := s.drop
		for i, name := range path {
			d := at[name]
			if d == nil {
				d = &drop{below: dropped{}}
				at[name] = d
			}
			d.whole = d.whole || i == len(path)-1
			at = d.below
		}
	}
	if r.Redact {
		s.added = [places]string{atRoot: "metadata", inMetadata: "annotations", inAnnotations: redactedKey}
	}
	if !s.redact && !s.federator && len(s.drop) == 0 {
		return nil
	}
	return s
}

// shape returns the object after the rules, valid until the next call.
func (s *shaper) shape(body []byte) []byte {
	if cap(s.out) > maxKeptBuffer {
		s.out = nil
	}
	s.out, s.original = s.out[:0], nil
	at := elsewhere
	if s.redact || s.federator {
		at = atRoot
	}
	r := readerOf(body)
	s.object(&r, s.drop, at)
	return s.out
}

var emptyObject = []byte("{}")

func (s *shaper) object(r *reader, drop dropped, at position) {
	s.out = append(s.out, '{')
	start := len(s.out)
	added := s.added[at]
	for more := r.Open('{'); more; more = r.Next('}') {
		key, name := r.key()
		if added != "" && added <= name {
			if added < name {
				s.add(start, added, drop[added], at)
			}
			added = ""
		}
		s.member(start, r, key, name, drop[name], at)
	}
	if added != "" {
		s.add(start, added, drop[added], at)
	}
	s.out = append(s.out, '}')
}

// add writes a member with an empty object as its value, to which the rules are then
// applied.
func (s *shaper) add(start int, name string, d *drop, at position) {
	r := readerOf(emptyObject)
	s.member(start, &r, []byte(name), name, d, at)
}

// member writes a member, whose value r reads, of an object that starts at start.
func (s *shaper) member(start int, r *reader, key []byte, name string, d *drop, at position) {
	if at == inAnnotations && s.federator && name == api.ResourceVersionKey {
		s.original = append(s.original, r.Value()...)
		return
	}
	if d != nil && d.whole || at == inAnnotations && s.redact && name == lastApplied {
		r.Skip()
		return
	}
	before := len(s.out)
	if len(s.out) > start {
		s.out = append(s.out, ',')
	}
	s.out = append(append(append(s.out, '"'), key...), '"', ':')
	var below dropped
	if d != nil {
		below = d.below
	}
	if at == inMetadata && name == "resourceVersion" && s.original != nil {
		r.Skip()
		s.out = append(s.out, s.original...)
		return
	}
	value := len(s.out)
	s.value(r, name, below, at)
	if at == inMetadata && s.federator && name == "annotations" && string(s.out[value:]) == "{}" {
		s.out = s.out[:before] // it has none of its own
	}
}

func (s *shaper) value(r *reader, name string, below dropped, at position) {
	c := r.Peek()
	within := elsewhere
	switch at {
	case atRoot:
		switch name {
		case "metadata":
			within = inMetadata
		case "data", "binaryData", "stringData":
			if !s.redact {
				break
			}
			if within = inValues; c != '{' && c != 'n' {
				r.Skip()
				s.out = append(s.out, `""`...) // regardless of its type
				return
			}
		}
	case inValues:
		r.Skip()
		s.out = append(s.out, `""`...)
		return
	case inMetadata:
		if name == "annotations" {
			s.annotations(r, below)
			return
		}
	case inAnnotations:
		switch {
		case !s.redact:
		case name == redactedKey:
			r.Skip()
			s.out = append(s.out, `"true"`...)
			return
		case c == 'n':
			r.Skip()
			s.out = append(s.out, `""`...)
			return
		}
	}
	if c == '{' && (within != elsewhere || len(below) > 0) {
		s.object(r, below, within)
		return
	}
	s.out = append(s.out, r.Value()...)
}

// annotations writes annotations; those that are not a map of strings count as none.
func (s *shaper) annotations(r *reader, below dropped) {
	if r.stringMap() {
		s.object(r, below, inAnnotations)
		return
	}
	r.Skip()
	empty := readerOf(emptyObject)
	s.object(&empty, below, inAnnotations)
}

// stringMap reports whether a map of strings, or nulls, is next. It consumes nothing.
func (r *reader) stringMap() bool {
	ahead := *r
	if ahead.Peek() != '{' {
		return false
	}
	for more := ahead.Open('{'); more; more = ahead.Next('}') {
		ahead.Key()
		if c := ahead.Peek(); c != '"' && c != 'n' {
			return false
		}
		ahead.Skip()
	}
	return true
}

// Sensitive reports whether objects of a kind have values that Rules.Redact cuts.
func Sensitive(kind aggregate.Kind) bool { return kind == "Secret" || kind == "ConfigMap" }
