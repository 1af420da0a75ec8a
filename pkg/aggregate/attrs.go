package aggregate

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// attrSet is an interned set of key/value pairs: an object's labels, or the
// values of its kind's declared fields. Objects of one workload share theirs,
// so an index by set holds one posting an object however many labels it has.
type attrSet struct {
	id    uint64 // unique in the process, for ordering only
	space byte
	pairs []Label
}

// Labels and declared fields are interned apart: a set belongs to one index.
const (
	labelSpace byte = iota
	fieldSpace
)

// attrSet answers selectors.
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

// Lookup returns the value of a key.
func (s *attrSet) Lookup(k string) (string, bool) {
	for _, p := range s.list() {
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

// interner holds the sets of one scope. The reader of a member's stream and
// the committing goroutine both use it.
type interner struct {
	mu     sync.Mutex
	attrs  map[string]*attrSet
	owners map[string]*ownerSet
	buf    []byte
}

func newInterner() *interner {
	return &interner{attrs: map[string]*attrSet{}, owners: map[string]*ownerSet{}}
}

// intern keeps strings that many objects share once in the process. It copies:
// the argument may alias a decoder's buffer.
func intern(s string) string {
	if s == "" {
		return ""
	}
	return unique.Make(s).Value()
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

func (t *interner) set(space byte, pairs []Label) *attrSet {
	if len(pairs) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = appendSet(t.buf[:0], space, pairs)
	if s, ok := t.attrs[string(t.buf)]; ok {
		return s
	}
	s := &attrSet{id: setNumbers.Add(1), space: space, pairs: make([]Label, len(pairs))}
	for i, p := range pairs {
		s.pairs[i] = Label{Key: intern(p.Key), Value: intern(p.Value)}
	}
	t.attrs[string(t.buf)] = s
	return s
}

// adopt takes up the sets of an object that an earlier writer left.
func (t *interner) adopt(id *identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range []*attrSet{id.labels, id.fields} {
		if s == nil {
			continue
		}
		t.buf = appendSet(t.buf[:0], s.space, s.pairs)
		if _, ok := t.attrs[string(t.buf)]; !ok {
			t.attrs[string(t.buf)] = s
		}
	}
	if o := id.owners; o != nil && !o.odd {
		t.buf = ownersKey(t.buf[:0], o.owners)
		if _, ok := t.owners[string(t.buf)]; !ok {
			t.owners[string(t.buf)] = o
		}
	}
}

// sweep forgets the sets of items that never came into the scope, once they
// are more than those in use. attrs and owners count the objects of each set in
// use.
func (t *interner) sweep(attrs map[*attrSet]int, owners map[*ownerSet]int) {
	const slack = 64
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.attrs) > 2*len(attrs)+slack {
		maps.DeleteFunc(t.attrs, func(_ string, s *attrSet) bool { return attrs[s] == 0 })
	}
	if len(t.owners) > 2*len(owners)+slack {
		maps.DeleteFunc(t.owners, func(_ string, s *ownerSet) bool { return owners[s] == 0 })
	}
}

// forget drops a set that no object has any more. An entry on its way with the
// old pointer is harmless: the indexes go by set number, not by content.
func (t *interner) forget(s *attrSet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = appendSet(t.buf[:0], s.space, s.pairs)
	if t.attrs[string(t.buf)] == s {
		delete(t.attrs, string(t.buf))
	}
}

func ownersKey(b []byte, owners []Owner) []byte {
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

func copyOwners(owners []Owner) []Owner {
	out := make([]Owner, len(owners))
	for i, o := range owners {
		out[i] = Owner{
			APIVersion: intern(o.APIVersion), Kind: intern(o.Kind), Controller: o.Controller,
			Name: strings.Clone(o.Name), UID: strings.Clone(o.UID),
		}
	}
	return out
}

func (t *interner) ownerSet(owners []Owner) *ownerSet {
	if len(owners) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = ownersKey(t.buf[:0], owners)
	if s, ok := t.owners[string(t.buf)]; ok {
		return s
	}
	s := &ownerSet{owners: copyOwners(owners)}
	t.owners[string(t.buf)] = s
	return s
}

func (t *interner) forgetOwners(s *ownerSet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = ownersKey(t.buf[:0], s.owners)
	if t.owners[string(t.buf)] == s {
		delete(t.owners, string(t.buf))
	}
}

// pair is one key/value pair of one set, in the order (key, value, set).
type pair struct {
	key, value string
	set        *attrSet
}

func lessPair(a, b pair) bool {
	if a.key != b.key {
		return a.key < b.key
	}
	if a.value != b.value {
		return a.value < b.value
	}
	return a.set.number() < b.set.number()
}

// attrIndex finds objects by the pairs of one of their sets: pairs leads from
// a pair to the sets that have it, postings from a set to its objects.
type attrIndex struct {
	pairs    *btree.BTreeG[pair]
	postings *btree.BTreeG[*identity]
}

func newAttrIndex(of func(*identity) *attrSet) attrIndex {
	return attrIndex{
		pairs: newTree(lessPair),
		postings: newTree(func(a, b *identity) bool {
			return compareBy(of(a), of(b), a, b) < 0
		}),
	}
}

func (x attrIndex) copy() attrIndex {
	return attrIndex{pairs: x.pairs.Copy(), postings: x.postings.Copy()}
}

// matching returns the sets that a selector matches and some object has.
func (x attrIndex) matching(sel labels.Selector) []*attrSet {
	reqs, selectable := sel.Requirements()
	if !selectable {
		return nil
	}
	var sets []*attrSet
	narrowed := false
	for _, r := range reqs {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			var having []*attrSet
			for v := range r.Values() {
				having = x.having(having, r.Key(), v)
			}
			if !narrowed || len(having) < len(sets) {
				sets, narrowed = having, true
			}
		}
	}
	if !narrowed {
		sets = x.having(nil, "", "")
	}
	return slices.DeleteFunc(sets, func(s *attrSet) bool { return !sel.Matches(s) })
}

// having appends the sets that have a pair. Every set has the empty one.
func (x attrIndex) having(dst []*attrSet, key, value string) []*attrSet {
	x.pairs.Ascend(pair{key: key, value: value}, func(p pair) bool {
		if p.key != key || p.value != value {
			return false
		}
		dst = append(dst, p.set)
		return true
	})
	return dst
}

// treeDegree trades the bytes that a commit copies (a path of nodes) against
// the depth of the tree.
const treeDegree = 16

func newTree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: treeDegree})
}
