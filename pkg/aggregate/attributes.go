package aggregate

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
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

// attrIndex finds objects by the pairs of one of their sets: pairs leads from
// a pair to the sets that may have it, postings from a set to its objects.
type attrIndex struct {
	of       func(*identity) *attrSet
	less     func(a, b *identity) bool // of postings
	pairs    *btree.BTreeG[pairPlace]
	postings *btree.BTreeG[*identity]
}

// pairPlace is one pair of one set, by a hash of the pair: twelve bytes without a pointer,
// because many pairs are of a single object (a pod's own name, a job's UID) and never
// queried. Lookups compare the pair with that of the set.
type pairPlace struct{ hash, high, low uint32 }

// pairSeed prevents members from causing collisions.
var pairSeed = maphash.MakeSeed()

func hashPair(key, value string) uint32 {
	h := bits.RotateLeft64(maphash.String(pairSeed, key), 29) ^ maphash.String(pairSeed, value)
	return uint32(h>>32) ^ uint32(h) // folded
}

func placeOf(p Label, set *attrSet) pairPlace {
	return pairPlace{hashPair(p.Key, p.Value), uint32(set.id >> 32), uint32(set.id)} // both halves
}

func (p pairPlace) set() uint64 { return uint64(p.high)<<32 | uint64(p.low) }

func lessPlace(a, b pairPlace) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	return a.set() < b.set()
}

func newAttrIndex(of func(*identity) *attrSet) attrIndex {
	less := func(a, b *identity) bool { return compareBy(of(a), of(b), a, b) < 0 }
	return attrIndex{of: of, less: less, pairs: newTree(lessPlace), postings: newTree(less)}
}

// private returns an index that a scope's writer may write, given a published one.
func (x attrIndex) private() attrIndex {
	x.pairs, x.postings = private(x.pairs, lessPlace), private(x.postings, x.less)
	return x
}

// matching returns the sets that a selector matches and that some object has.
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
		sets = x.sets()
	}
	return slices.DeleteFunc(sets, func(s *attrSet) bool { return !sel.Matches(s) })
}

// having appends the sets that have a pair, in the order of their numbers.
func (x attrIndex) having(dst []*attrSet, key, value string) []*attrSet {
	first := x.newSetPivot()
	hash := hashPair(key, value)
	x.pairs.Ascend(pairPlace{hash: hash}, func(p pairPlace) bool {
		if p.hash != hash {
			return false
		}
		if set := x.set(first.at(p.set())); set.number() == p.set() {
			if v, ok := set.Lookup(key); ok && v == value {
				dst = append(dst, set)
			}
		}
		return true
	})
	return dst
}

// setPivot comes before the first posting of a set.
type setPivot struct {
	identity
	set attrSet
}

func (x attrIndex) newSetPivot() *setPivot {
	p := &setPivot{identity: *firstKey}
	p.labels, p.fields = &p.set, &p.set // the index uses one of the two
	return p
}

func (p *setPivot) at(number uint64) *setPivot {
	p.set.id = number
	return p
}

// set returns the first set at or after a pivot, nil after the last.
func (x attrIndex) set(from *setPivot) (set *attrSet) {
	x.postings.Ascend(&from.identity, func(id *identity) bool {
		set = x.of(id)
		return false
	})
	return set
}

// sets returns all sets. It iterates over the objects of small sets, and seeks past those of
// large ones.
func (x attrIndex) sets() (all []*attrSet) {
	const steps = 16
	from := x.newSetPivot()
	it := x.postings.Iter()
	defer it.Release()
	for more := it.First(); more; {
		set := x.of(it.Item())
		all = append(all, set)
		for n := 0; more && x.of(it.Item()) == set; n++ {
			if n == steps {
				more = it.Seek(&from.at(set.id + 1).identity)
				break
			}
			more = it.Next()
		}
	}
	return all
}

// treeDegree trades the bytes that a commit copies (a path of nodes) against
// the depth of the tree.
const treeDegree = 16

func newTree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: treeDegree})
}
