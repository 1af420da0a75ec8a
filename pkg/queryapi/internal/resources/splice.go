package resources

import (
	"bytes"
	"errors"
	"strconv"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/scan"
)

// errShape is for a body that is no object with metadata, which the index does
// not hold.
var errShape = errors.New("body is not an object with metadata")

// member is one key of a JSON object with its value, as they stand in its bytes.
type member struct{ key, value []byte } // the key with its quotes

// split calls f with the members of a JSON object without white space, such as
// the index's bodies, and returns what follows it.
func split(b []byte, f func(member)) ([]byte, error) {
	i, more := scan.Open(b, 0, '{')
	for more {
		key, at := scan.Key(b, i)
		if at < 0 {
			return nil, errShape
		}
		end := scan.Value(b, at)
		if i, more = scan.Next(b, end); i >= 0 {
			f(member{key, b[at:end]})
		}
	}
	if i < 0 {
		return nil, errShape
	}
	return b[i:], nil
}

// splicer makes of an object's canonical JSON what is sent of it.
type splicer struct {
	meta []byte
}

var (
	keyMetadata        = []byte(`"metadata"`)
	keyAnnotations     = []byte(`"annotations"`)
	keyResourceVersion = []byte(`"resourceVersion"`)
	keyMember          = []byte(strconv.Quote(api.MemberKey))
	keyOwnVersion      = []byte(strconv.Quote(api.ResourceVersionKey))
)

// stamp is what is told of an object beside its body.
type stamp struct {
	member, version string // the member, and its own resourceVersion
	revision        aggregate.Revision
}

// appendObject appends the whole object.
func (s *splicer) appendObject(dst, body []byte, st stamp) ([]byte, error) {
	first, found := true, false
	dst = append(dst, '{')
	var failed error
	rest, err := split(body, func(m member) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(dst, m.key...), ':')
		if !bytes.Equal(m.key, keyMetadata) {
			dst = append(dst, m.value...)
			return
		}
		found = true
		dst, failed = appendMetadata(dst, m.value, st)
	})
	if err = errors.Join(err, failed); err != nil {
		return dst, err
	}
	if !found || len(rest) != 0 {
		return dst, errShape
	}
	return append(dst, '}'), nil
}

// appendPartial appends the object as PartialObjectMetadata.
func (s *splicer) appendPartial(dst, body []byte, st stamp) ([]byte, error) {
	s.meta = s.meta[:0]
	_, err := split(body, func(m member) {
		if bytes.Equal(m.key, keyMetadata) {
			s.meta = append(s.meta, m.value...)
		}
	})
	if err != nil {
		return dst, err
	}
	dst = append(dst, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`...)
	if dst, err = appendMetadata(dst, s.meta, st); err != nil {
		return dst, err
	}
	return append(dst, '}'), nil
}

// appendMetadata appends metadata with the stamp. What the member says under
// our own annotations goes: only we say who has the object.
func appendMetadata(dst, meta []byte, st stamp) ([]byte, error) {
	dst = append(dst, `{"annotations":{`...)
	dst = append(append(dst, keyMember...), ':')
	dst = appendString(dst, st.member)
	dst = append(append(append(dst, ','), keyOwnVersion...), ':')
	dst = appendString(dst, st.version)
	var failed error
	_, err := split(meta, func(m member) {
		if !bytes.Equal(m.key, keyAnnotations) || bytes.Equal(m.value, []byte("null")) {
			return
		}
		_, failed = split(m.value, func(a member) {
			if bytes.Equal(a.key, keyMember) || bytes.Equal(a.key, keyOwnVersion) {
				return
			}
			dst = append(append(append(append(dst, ','), a.key...), ':'), a.value...)
		})
	})
	if err = errors.Join(err, failed); err != nil {
		return dst, err
	}
	dst = append(dst, '}')
	_, err = split(meta, func(m member) {
		if !bytes.Equal(m.key, keyAnnotations) && !bytes.Equal(m.key, keyResourceVersion) {
			dst = append(append(append(append(dst, ','), m.key...), ':'), m.value...)
		}
	})
	if err != nil {
		return dst, err
	}
	dst = append(append(append(dst, ','), keyResourceVersion...), ':', '"')
	dst = strconv.AppendUint(dst, uint64(st.revision), 10)
	return append(dst, '"', '}'), nil
}
