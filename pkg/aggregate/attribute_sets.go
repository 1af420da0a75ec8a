package aggregate

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
)

// attrSet is an interned set of key/value pairs: an object's labels, or the
// values of its kind's declared fields. Objects of one workload share theirs,
// so an index by set holds one posting an object however many labels it has.
type attrSet struct {
	id    uint64 // unique in the process, for ordering only
	users int32  // objects with the set in the scope's next root; only its writer uses it
	space byte
	pairs []Label // of text
	text  string  // the key in the interner: one allocation for all its strings
}

// Labels and declared fields are interned separately: a set belongs to one index.
const (
	labelSpace byte = iota
	fieldSpace
)

// attrSet implements labels.Labels.
var _ labels.Labels = (*attrSet)(nil)

func (s *attrSet) number() uint64 {
	if s == nil {
		return 0
	}
	return s.id
}

func (s *attrSet) list() []Label {
	if s == nil {
		return nil
	}
	return s.pairs
}

// manyLabels is the number of labels from which lookups use binary search. Fields are not
// sorted by name, and few.
const manyLabels = 16

// Lookup returns the value of a key.
func (s *attrSet) Lookup(k string) (string, bool) {
	pairs := s.list()
	if len(pairs) >= manyLabels && s.space == labelSpace {
		i, ok := slices.BinarySearchFunc(pairs, k, func(p Label, k string) int { return strings.Compare(p.Key, k) })
		if !ok {
			return "", false
		}
		return pairs[i].Value, true
	}
	for _, p := range pairs {
		if p.Key == k {
			return p.Value, true
		}
	}
	return "", false
}

// Has reports whether the set has a key.
func (s *attrSet) Has(k string) bool { _, ok := s.Lookup(k); return ok }

// Get returns the value of a key, "" if it is absent.
func (s *attrSet) Get(k string) string { v, _ := s.Lookup(k); return v }

// setNumbers numbers the sets of all indexes of the process.
var setNumbers atomic.Uint64

// ownerSet is an interned list of owners. A set with unusual values is not interned: uid and
// rv hold what does not fit identity.uid and entry.rv.
type ownerSet struct {
	owners  []Owner // of text
	text    string
	uid, rv string // of text, too
	users   int32  // as of an attrSet
	odd     bool
}

// interner holds the sets of one scope. It is used by the reader of a member's stream and by
// the committing goroutine.
type interner struct {
	mu     sync.Mutex
	attrs  shrinking[string, *attrSet]
	owners shrinking[string, *ownerSet]

	// Sets of items that may never be added to the scope.
	looseAttrs  []*attrSet
	looseOwners []*ownerSet
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendSet(b []byte, space byte, pairs []Label) []byte {
	b = append(b, space)
	for _, p := range pairs {
		b = appendString(appendString(b, p.Key), p.Value)
	}
	return b
}

// cutString splits off the first string written by appendString.
func cutString(text string) (s, rest string) {
	// A length takes few bytes; the rest is not read.
	n, size := binary.Uvarint(unsafeBytes(text[:min(len(text), binary.MaxVarintLen64)]))
	return text[size : size+int(n)], text[size+int(n):] // a length that appendString wrote
}

func newAttrSet(space byte, text string, n int) *attrSet {
	s := &attrSet{id: setNumbers.Add(1), space: space, pairs: make([]Label, n), text: text}
	rest := text[1:]
	for i := range s.pairs {
		s.pairs[i].Key, rest = cutString(rest)
		s.pairs[i].Value, rest = cutString(rest)
	}
	return s
}

// set interns pairs. It reports whether the set is new. key is for its use.
func (t *interner) set(key *[]byte, space byte, pairs []Label) (s *attrSet, fresh bool) {
	*key = appendSet((*key)[:0], space, pairs)
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.attrs.get(unsafeString(*key)); ok {
		return s, false
	}
	s = newAttrSet(space, string(*key), len(pairs))
	t.attrs.set(s.text, s)
	t.looseAttrs = append(t.looseAttrs, s)
	return s, true
}

// adopt registers the sets of an object of an earlier writer.
func (t *interner) adopt(id *identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range []*attrSet{id.labels, id.fields} {
		if s == nil {
			continue
		}
		if _, known := t.attrs.get(s.text); !known {
			t.attrs.set(s.text, s)
		}
	}
	if o := id.owners; o != nil && !o.odd {
		if _, known := t.owners.get(o.text); !known {
			t.owners.set(o.text, o)
		}
	}
}

// sweep drops the sets of items that have not been added to the scope, once there are many.
// If such an item is added later, its set still works: the indexes are by set, not by
// content. It is called by the scope's writer.
func (t *interner) sweep() {
	const slack = 64
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.looseAttrs) > slack {
		for _, s := range t.looseAttrs {
			if s.users == 0 {
				t.drop(s)
			}
		}
		t.looseAttrs = nil
	}
	if len(t.looseOwners) > slack {
		for _, s := range t.looseOwners {
			if s.users == 0 {
				t.dropOwners(s)
			}
		}
		t.looseOwners = nil
	}
}

// drop removes a set. t.mu must be held.
func (t *interner) drop(s *attrSet) {
	if held, _ := t.attrs.get(s.text); held == s {
		t.attrs.delete(s.text)
	}
}

func (t *interner) dropOwners(s *ownerSet) {
	if held, _ := t.owners.get(s.text); held == s {
		t.owners.delete(s.text)
	}
}

// forget drops a set that no object has any more. An item in progress with the old pointer
// is harmless: the indexes are by set number, not by content.
func (t *interner) forget(s *attrSet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(s)
}

func (t *interner) forgetOwners(s *ownerSet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropOwners(s)
}

func ownersText(b []byte, owners []Owner) []byte {
	for _, o := range owners {
		b = appendString(appendString(appendString(appendString(b, o.UID), o.Kind), o.Name), o.APIVersion)
		if o.Controller {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// cutOwners decodes the text that ownersText made of n owners.
func cutOwners(text string, n int) (owners []Owner, rest string) {
	owners = make([]Owner, n)
	for i := range owners {
		o := &owners[i]
		o.UID, text = cutString(text)
		o.Kind, text = cutString(text)
		o.Name, text = cutString(text)
		o.APIVersion, text = cutString(text)
		o.Controller, text = text[0] != 0, text[1:]
	}
	return owners, text
}

// oddOwners returns a set with the values that do not fit elsewhere.
func oddOwners(owners []Owner, uid, rv string) *ownerSet {
	s := &ownerSet{text: string(appendString(appendString(ownersText(nil, owners), uid), rv)), odd: true}
	var rest string
	s.owners, rest = cutOwners(s.text, len(owners))
	s.uid, rest = cutString(rest)
	s.rv, _ = cutString(rest)
	return s
}

// ownerSet interns owners. It reports whether the set is new. key is for its use.
func (t *interner) ownerSet(key *[]byte, owners []Owner) (s *ownerSet, fresh bool) {
	*key = ownersText((*key)[:0], owners)
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.owners.get(unsafeString(*key)); ok {
		return s, false
	}
	s = &ownerSet{text: string(*key)}
	s.owners, _ = cutOwners(s.text, len(owners))
	t.owners.set(s.text, s)
	t.looseOwners = append(t.looseOwners, s)
	return s, true
}
