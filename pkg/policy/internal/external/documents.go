package external

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/value"
)

// MaxBytes bounds the content of a document, in bytes of JSON.
const MaxBytes = 4 << 20

// Document is a document of a source.
type Document struct {
	// JSON is the newest content that was valid, as Decode returns it; nil: there has been none.
	JSON []byte
	// Problem is why the content is not known to be so now, with a location; "" if it is known.
	Problem string
	// Pending says that nothing is known yet because it has not been read, which is being done. Problem says so, too.
	Pending bool
	From    string    // where it was read, and the version there
	At      time.Time // when it was last found to be so
}

// Documents are those of all sources, immutable. nil are those of which nothing is known yet.
type Documents struct {
	sources map[string]*source
}

type source struct {
	names   []string // sorted
	entries map[string]*entry
	whole   value.Value
	bytes   int64
	digest  [sha256.Size]byte
	pending bool
}

type entry struct {
	Document
	value  value.Value // undefined: there is none
	digest [sha256.Size]byte
}

// None are the documents of no source: known to be all.
func None() *Documents { return &Documents{sources: map[string]*source{}} }

// New returns the documents of sources, by source and key. Its error is of a content that is not as Decode returns it.
func New(of map[string]map[string]Document) (*Documents, error) {
	d := None()
	for _, name := range slices.Sorted(maps.Keys(of)) {
		var err error
		if d, err = d.With(name, of[name]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// With returns documents with others of one source. What has not changed is shared.
func (d *Documents) With(name string, documents map[string]Document) (*Documents, error) {
	var was *source
	if d != nil {
		was = d.sources[name]
	}
	s, err := newSource(was, documents)
	if err != nil {
		return nil, fmt.Errorf("external documents of source %q: %w", clip.Text(name, 64), err)
	}
	out := None()
	if d != nil {
		maps.Copy(out.sources, d.sources)
	}
	out.sources[name] = s
	return out, nil
}

// Without returns documents without those of a source.
func (d *Documents) Without(name string) *Documents {
	out := None()
	if d != nil {
		maps.Copy(out.sources, d.sources)
	}
	delete(out.sources, name)
	return out
}

func newSource(was *source, documents map[string]Document) (*source, error) {
	s := &source{names: slices.Sorted(maps.Keys(documents)), entries: make(map[string]*entry, len(documents))}
	sum := sha256.New()
	pairs := make([]value.Value, 0, 2*len(documents))
	for _, key := range s.names {
		var before *entry
		if was != nil {
			before = was.entries[key]
		}
		e, err := newEntry(before, documents[key])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", clip.Text(key, 64), err)
		}
		s.entries[key] = e
		s.pending = s.pending || e.Pending
		s.bytes += int64(len(e.JSON))
		if e.value.Defined() {
			pairs = append(pairs, value.Text(key), e.value)
		}
		_, _ = fmt.Fprintf(sum, "%q %x %t\n", key, e.digest, e.Problem == "")
	}
	s.whole = value.ObjectOf(pairs)
	copy(s.digest[:], sum.Sum(nil))
	return s, nil
}

func newEntry(was *entry, d Document) (*entry, error) {
	e := &entry{Document: d}
	if d.JSON == nil {
		return e, nil
	}
	if len(d.JSON) > MaxBytes {
		return nil, fmt.Errorf("it has more than %d bytes", MaxBytes)
	}
	e.digest = sha256.Sum256(d.JSON)
	if was != nil && was.JSON != nil && was.digest == e.digest {
		e.value, e.JSON = was.value, was.JSON
		return e, nil
	}
	var err error
	e.value, err = value.DecodeCopy(d.JSON, mask.Whole())
	return e, err
}

// Read is what policies see of a document.
type Read struct {
	Value value.Value // undefined: there is no such key, or nothing is known of it
	Bytes int64       // of the text
	Found bool        // the source has the key
}

// Get returns a document.
func (d *Documents) Get(name, key string) Read {
	if d == nil || d.sources[name] == nil {
		return Read{}
	}
	e := d.sources[name].entries[key]
	if e == nil {
		return Read{}
	}
	return Read{e.value, int64(len(e.JSON)), true}
}

// Whole returns an object of all documents of a source of which there is a content; undefined without the source.
func (d *Documents) Whole(name string) Read {
	if d == nil || d.sources[name] == nil {
		return Read{}
	}
	s := d.sources[name]
	return Read{s.whole, s.bytes, true}
}

// Keys returns the keys of a source, in order, and whether there is such a source.
func (d *Documents) Keys(name string) (keys []string, ok bool) {
	if d == nil || d.sources[name] == nil {
		return nil, false
	}
	return d.sources[name].names, true
}

// Sources yields the names of the sources, in order.
func (d *Documents) Sources() iter.Seq[string] {
	if d == nil {
		return slices.Values[[]string](nil)
	}
	return slices.Values(slices.Sorted(maps.Keys(d.sources)))
}

// Document returns a document as it was given; false if there is none.
func (d *Documents) Document(name, key string) (Document, bool) {
	if d == nil || d.sources[name] == nil || d.sources[name].entries[key] == nil {
		return Document{}, false
	}
	return d.sources[name].entries[key].Document, true
}

// Digest names the contents of some sources and which of them are known: it is the same where verdicts that read these are. It
// is text of 22 bytes.
func (d *Documents) Digest(names []string) string {
	sum := sha256.New()
	for _, name := range names {
		switch {
		case d == nil:
			_, _ = fmt.Fprintf(sum, "%q unread\n", name)
		case d.sources[name] == nil:
			_, _ = fmt.Fprintf(sum, "%q none\n", name)
		default:
			_, _ = fmt.Fprintf(sum, "%q %x\n", name, d.sources[name].digest)
		}
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
}

// DigestOf names one content; "" where there is none.
func (d *Documents) DigestOf(name, key string) string {
	if d == nil || d.sources[name] == nil || d.sources[name].entries[key] == nil || d.sources[name].entries[key].JSON == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(d.sources[name].entries[key].digest[:16])
}

// Pending reports whether documents of some sources are about to be known.
func (d *Documents) Pending(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return d == nil || d.sources[name] != nil && d.sources[name].pending
	})
}

// ProblemOfAny returns why a read of all documents of a source is not known, "" if it is.
func (d *Documents) ProblemOfAny(name string) string {
	keys, ok := d.Keys(name)
	if !ok {
		return d.Problem(name, "")
	}
	for _, key := range keys {
		if why := d.Problem(name, key); why != "" {
			return why
		}
	}
	return ""
}

// Problem returns why a read of a key of a source is not known, "" if it is. Of a key that the source does not have it is
// known that it is absent.
func (d *Documents) Problem(name, key string) string {
	switch {
	case d == nil:
		return fmt.Sprintf("data.fleet.external[%q]: no external documents have been read yet", clip.Text(name, 64))
	case d.sources[name] == nil:
		return fmt.Sprintf("data.fleet.external[%q]: there is no source of that name with external documents", clip.Text(name, 64))
	case d.sources[name].entries[key] == nil || d.sources[name].entries[key].Problem == "":
		return ""
	}
	return fmt.Sprintf("data.fleet.external[%q][%q]: %s", clip.Text(name, 64), clip.Text(key, 64), clip.Text(d.sources[name].entries[key].Problem, 500))
}
