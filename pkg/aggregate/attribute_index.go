package aggregate

import (
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

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
