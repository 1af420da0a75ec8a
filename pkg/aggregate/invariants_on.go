//go:build invariants

package aggregate

import (
	"fmt"
	"unique"
)

// checkMax bounds the cost of a check: larger scopes are checked at every nth commit, n
// being their thousands of objects.
const checkMax = 1000

// checkRoot panics when the trees of a root are inconsistent.
func checkRoot(r *scopeRoot) {
	n := r.objects.Len()
	if n > checkMax && setNumbers.Load()%uint64(n/checkMax+1) != 0 {
		return
	}
	labelled, fielded, owned := 0, 0, 0
	var bytes int64
	sets, owners, namespaces := newTally[*attrSet](), newTally[*ownerSet](), newTally[unique.Handle[string]]()
	r.objects.Scan(func(e *entry) bool {
		bytes += e.size()
		for _, set := range []*attrSet{e.labels, e.fields} {
			if set != nil && sets.add(set) {
				bytes += set.size()
			}
		}
		if e.owners != nil && !e.owners.odd && owners.add(e.owners) {
			bytes += e.owners.size()
		}
		if namespaces.add(e.namespace) {
			bytes += namespaceSize(e.identity)
		}
		labelled += checkSet(r.labels, e.labels, e.identity)
		fielded += checkSet(r.fields, e.fields, e.identity)
		seen := map[string]bool{}
		for _, o := range e.ownerList() {
			ref, ok := r.owners.Get(ownerRef{o.UID, e.identity})
			if !ok || ref.identity != e.identity {
				panic(fmt.Sprintf("aggregate: owner %s of %s is not indexed", o.UID, e.name))
			}
			if !seen[o.UID] {
				seen[o.UID] = true
				owned++
			}
		}
		return true
	})
	if labelled != r.labels.postings.Len() || fielded != r.fields.postings.Len() || owned != r.owners.Len() {
		panic(fmt.Sprintf("aggregate: %s %s: postings %d, %d, %d for %d, %d, %d objects", r.member, r.kind,
			r.labels.postings.Len(), r.fields.postings.Len(), r.owners.Len(), labelled, fielded, owned))
	}
	if bytes != r.bytes {
		panic(fmt.Sprintf("aggregate: %s %s: account of %d bytes, holds %d", r.member, r.kind, r.bytes, bytes))
	}
}

func checkSet(x attrIndex, set *attrSet, id *identity) int {
	if set == nil {
		return 0
	}
	if got, ok := x.postings.Get(id); !ok || got != id {
		panic(fmt.Sprintf("aggregate: %s is not posted", id.name))
	}
	for _, p := range set.pairs {
		if _, ok := x.pairs.Get(placeOf(p, set)); !ok {
			panic(fmt.Sprintf("aggregate: pair %s=%s of %s is not indexed", p.Key, p.Value, id.name))
		}
	}
	return 1
}
