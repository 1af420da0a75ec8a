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
	var sets tally[*attrSet]
	var owners tally[*ownerSet]
	var namespaces tally[unique.Handle[string]]
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
	checkUsers(r, &sets, &owners)
	if labelled != r.labels.postings.Len() || fielded != r.fields.postings.Len() || owned != r.owners.Len() {
		panic(fmt.Sprintf("aggregate: %s %s: postings %d, %d, %d for %d, %d, %d objects", r.member, r.kind,
			r.labels.postings.Len(), r.fields.postings.Len(), r.owners.Len(), labelled, fielded, owned))
	}
	if bytes != r.bytes {
		panic(fmt.Sprintf("aggregate: %s %s: account of %d bytes, holds %d", r.member, r.kind, r.bytes, bytes))
	}
}

// checkUsers panics when the numbers of users of the sets of a root are wrong.
func checkUsers(r *scopeRoot, sets *tally[*attrSet], owners *tally[*ownerSet]) {
	r.objects.Scan(func(e *entry) bool {
		for _, set := range []*attrSet{e.labels, e.fields} {
			if n, _ := sets.get(set); set != nil && n != set.users {
				panic(fmt.Sprintf("aggregate: %d users of %q, want %d", set.users, set.text, n))
			}
		}
		if o := e.owners; o != nil && !o.odd {
			if n, _ := owners.get(o); n != o.users {
				panic(fmt.Sprintf("aggregate: %d users of owners, want %d", o.users, n))
			}
		}
		return true
	})
}

// checkTotals panics when the sums that follow commits are not those of the scopes. x.mu must
// be held.
func (x *Index) checkTotals() {
	if x.scopes.Len() > checkMax/10 {
		return
	}
	var all totals
	kinds, open := map[Kind]kindTotals{}, 0
	x.scopes.Scan(func(r *scopeRoot) bool {
		all.add(r, 1)
		k := kinds[r.kind]
		k.add(r, 1)
		kinds[r.kind] = k
		if r.writer != nil {
			open++
		}
		return true
	})
	if all != x.totals || open != x.open {
		panic(fmt.Sprintf("aggregate: totals of %+v, %d open, want %+v, %d", x.totals, x.open, all, open))
	}
	for _, k := range x.codecs.all() {
		if k.held != kinds[k.kind] {
			panic(fmt.Sprintf("aggregate: %s: totals of %+v, want %+v", k.kind, k.held, kinds[k.kind]))
		}
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
