package resources

import (
	"errors"
	"strconv"

	"federator.dev/federator/api"
	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/aggregate"
)

// errShape is for a body that is no object with metadata, which the index does
// not hold.
var errShape = errors.New("body is not an object with metadata")

// split calls f with the keys and values of a JSON object without white space, such
// as the index's bodies, as they stand in its bytes. What follows the object is an
// error.
func split(b []byte, f func(key, value []byte)) error {
	r := canonjson.NewReader(b)
	for more := r.Open('{'); more; more = r.Next('}') {
		key, _ := r.Key()
		if value := r.Value(); value != nil {
			f(key, value)
		}
	}
	if r.End() != nil {
		return errShape
	}
	return nil
}

// appendMember appends a member of an object.
func appendMember(dst, key, value []byte) []byte {
	dst = append(append(append(dst, '"'), key...), '"', ':')
	return append(dst, value...)
}

// splicer makes of an object's canonical JSON what is sent of it.
type splicer struct {
	meta []byte
}

// addedMetadata is the metadata that is added to an object's body.
type addedMetadata struct {
	member, version string // the member, and its own resourceVersion
	revision        aggregate.Revision
}

// appendObject appends the whole object.
func (s *splicer) appendObject(dst, body []byte, added addedMetadata) ([]byte, error) {
	first, found := true, false
	dst = append(dst, '{')
	var failed error
	err := split(body, func(key, value []byte) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if string(key) != "metadata" {
			dst = appendMember(dst, key, value)
			return
		}
		found = true
		dst = append(dst, `"metadata":`...)
		dst, failed = appendMetadata(dst, value, added)
	})
	if err = errors.Join(err, failed); err != nil {
		return dst, err
	}
	if !found {
		return dst, errShape
	}
	return append(dst, '}'), nil
}

// appendPartial appends the object as PartialObjectMetadata.
func (s *splicer) appendPartial(dst, body []byte, added addedMetadata) ([]byte, error) {
	s.meta = s.meta[:0]
	err := split(body, func(key, value []byte) {
		if string(key) == "metadata" {
			s.meta = append(s.meta, value...)
		}
	})
	if err != nil {
		return dst, err
	}
	dst = append(dst, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`...)
	if dst, err = appendMetadata(dst, s.meta, added); err != nil {
		return dst, err
	}
	return append(dst, '}'), nil
}

// appendMetadata appends metadata with what is added. What the member says under
// our own annotations goes: only we say who has the object.
func appendMetadata(dst, meta []byte, added addedMetadata) ([]byte, error) {
	dst = append(dst, `{"annotations":{"`+api.MemberKey+`":`...)
	dst = appendString(dst, added.member)
	dst = append(dst, `,"`+api.ResourceVersionKey+`":`...)
	dst = appendString(dst, added.version)
	var failed error
	err := split(meta, func(key, value []byte) {
		if string(key) != "annotations" || string(value) == "null" {
			return
		}
		failed = split(value, func(key, value []byte) {
			if string(key) != api.MemberKey && string(key) != api.ResourceVersionKey {
				dst = appendMember(append(dst, ','), key, value)
			}
		})
	})
	if err = errors.Join(err, failed); err != nil {
		return dst, err
	}
	dst = append(dst, '}')
	err = split(meta, func(key, value []byte) {
		if string(key) != "annotations" && string(key) != "resourceVersion" {
			dst = appendMember(append(dst, ','), key, value)
		}
	})
	if err != nil {
		return dst, err
	}
	dst = append(dst, `,"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, uint64(added.revision), 10)
	return append(dst, '"', '}'), nil
}
