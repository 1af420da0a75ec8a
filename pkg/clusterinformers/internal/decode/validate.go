package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
)

// ErrUnfit is an object that no API server can have admitted: clients that trust API servers
// would fail on it, for all objects of its kind. The record then has what could be decoded
// of the object's identity.
var ErrUnfit = errors.New("object could not have been admitted by an API server")

// UnfitError says why an object is [ErrUnfit].
type UnfitError struct {
	Why   string // bounded, and without content from the member
	cause error
}

func (e *UnfitError) Error() string { return e.Why }

// Is reports whether target is ErrUnfit.
func (e *UnfitError) Is(target error) bool { return target == ErrUnfit }

// Unwrap returns the error of the decoder, if there was one.
func (e *UnfitError) Unwrap() error { return e.cause }

func unfit(format string, args ...any) error { return &UnfitError{Why: fmt.Sprintf(format, args...)} }

// Limits of API servers, in bytes.
const (
	maxNamespace  = 63
	maxLabelKey   = 253 + 1 + 63
	maxLabelValue = 63
	// maxName bounds names, which most kinds limit to 253 bytes and those of RBAC, whose
	// names may be any path segment, not at all.
	maxName = 1024
	// maxVersion bounds UIDs and resourceVersions, which are opaque.
	maxVersion = 256
)

// objectMeta is the program for metadata of every kind.
var objectMeta = sync.OnceValue(func() *program {
	p, err := programFor(reflect.TypeFor[metav1.ObjectMeta]())
	if err != nil {
		panic("decode: " + err.Error())
	}
	return p
})

// validate returns an error that is ErrUnfit for an object, as it was written to out
// and rec, that cannot be served to clients that trust API servers.
func (d *Decoder) validate(rec *aggregate.Record) error {
	t := &d.t
	switch {
	case t.foreign:
		return unfit("it has another apiVersion or kind")
	case t.meta < 0 || t.out[t.meta] != '{':
		return unfit("it has no metadata")
	}
	if d.enc == JSON { // protobuf is typed
		c := checker{t: t}
		if d.program != nil {
			r := readerOf(t.out)
			if path, ok := c.message(&r, d.program); !ok {
				return unfit("%s has the wrong type", path)
			}
		} else {
			r := readerOf(t.out[t.meta:])
			if path, ok := c.message(&r, objectMeta()); !ok {
				return unfit("%s has the wrong type", join("metadata", path))
			}
		}
	}
	return validateIdentity(rec)
}

// validateIdentity checks an object's identity against the limits of API servers.
func validateIdentity(rec *aggregate.Record) error {
	switch {
	case rec.Name == "":
		return unfit("it has no name")
	case len(rec.Name) > maxName:
		return unfit("its name has %d bytes", len(rec.Name))
	case rec.Name == "." || rec.Name == ".." || strings.ContainsAny(rec.Name, "/%") || !printable(rec.Name):
		return unfit("its name is not valid in a path")
	case len(rec.Namespace) > maxNamespace || !isLabel(rec.Namespace):
		return unfit("its namespace is not valid")
	case len(rec.UID) > maxVersion || len(rec.ResourceVersion) > maxVersion || !printable(rec.UID) || !printable(rec.ResourceVersion):
		return unfit("its uid or resourceVersion is not valid")
	}
	for _, l := range rec.Labels {
		if len(l.Key) > maxLabelKey || len(l.Value) > maxLabelValue {
			return unfit("it has a label that is too long")
		}
	}
	return nil
}

// Keyable reports whether an object may have the namespace and name.
func Keyable(rec *aggregate.Record) bool {
	return validateIdentity(&aggregate.Record{Namespace: rec.Namespace, Name: rec.Name}) == nil
}

// printable reports whether a text is valid, without control characters.
func printable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f {
			return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
		}
	}
	return true
}

// isLabel reports whether a namespace, "" for none, has only the characters of a DNS label.
func isLabel(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// exceedsDepth reports whether canonical JSON is nested more than maxNesting deep.
func exceedsDepth(b []byte) bool {
	r := readerOf(b)
	return r.exceedsDepth(maxNesting)
}

// exceedsDepth reports whether the next value is nested deeper than the limit.
func (r *reader) exceedsDepth(most int) bool {
	switch open := r.Peek(); open {
	case '{', '[':
		if most == 0 {
			return true
		}
		end := open + 2 // } and ] are two after { and [
		for more := r.Open(open); more; more = r.Next(end) {
			if open == '{' {
				r.Key()
			}
			if r.exceedsDepth(most - 1) {
				return true
			}
		}
	default:
		r.Skip()
	}
	return false
}

// identifyLoosely fills rec with what can be decoded of an invalid object.
func identifyLoosely(data []byte, rec *aggregate.Record) {
	*rec = aggregate.Record{Labels: rec.Labels[:0], Owners: rec.Owners[:0]}
	var m struct {
		Metadata struct{ Namespace, Name, UID, ResourceVersion string }
	}
	_ = json.Unmarshal(data, &m) //nolint:errcheck // best effort
	rec.Namespace, rec.Name, rec.UID, rec.ResourceVersion = m.Metadata.Namespace, m.Metadata.Name, m.Metadata.UID, m.Metadata.ResourceVersion
}
