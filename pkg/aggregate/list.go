package aggregate

import (
	"cmp"
	"container/heap"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/labels"
)

// Query selects objects of one kind. The zero value of a field selects
// everything.
type Query struct {
	Kind      Kind
	Members   []string // sorted; nil: all
	Namespace string
	Name      string
	// NamePrefix selects names that begin with it, as cheaply as Name does.
	NamePrefix string
	Labels     labels.Selector
	Fields     map[string]string // declared fields and their required values
	After      Position          // exclusive start: objects after it in the list's order
	// Done ends a list, which is not whole then, when it is closed: also one that finds nothing, where looking
	// takes a lookup for each namespace. nil: nothing does.
	Done <-chan struct{}
}

// done reports whether the list is to end.
func (q *Query) done() bool {
	select {
	case <-q.Done:
		return true
	default:
		return false
	}
}

// Position is a place in the order of lists: member, namespace, name.
type Position struct{ Member, Namespace, Name string }

// Position returns the object's place in the order of lists.
func (o Object) Position() Position {
	return Position{Member: o.Member(), Namespace: o.Namespace(), Name: o.Name()}
}

// List yields the objects that a query selects, by member, namespace and name. Its cost
// depends on the result only where a selector requires a value. It returns ErrNotIndexed for
// a field that the kind does not declare.
func (s *Snapshot) List(q Query) (iter.Seq[Object], error) {
	if err := s.checkQuery(q); err != nil {
		return nil, err
	}
	return func(yield func(Object) bool) {
		s.plans(q, func(r *scopeRoot, p plan) bool {
			return p.run(func(e *entry) bool { return yield(Object{r.scopeID, e}) })
		})
	}, nil
}

// Count returns how many objects a query selects, without decoding any.
func (s *Snapshot) Count(q Query) (int, error) {
	if err := s.checkQuery(q); err != nil {
		return 0, err
	}
	n := 0
	s.plans(q, func(r *scopeRoot, p plan) bool {
		if p.wholeRange() {
			n += p.length()
			return true
		}
		return p.run(func(*entry) bool { n++; return true })
	})
	return n, nil
}

func (s *Snapshot) checkQuery(q Query) error {
	for name := range q.Fields {
		if !slices.ContainsFunc(s.fields[q.Kind], func(f fieldPath) bool { return f.name == name }) {
			return fmt.Errorf("kind %s: field %q: %w", q.Kind, name, ErrNotIndexed)
		}
	}
	return nil
}

// Namespaces yields the namespaces of a scope that have objects, in order, and the number of
// each. Its cost depends on the number of namespaces, not of objects.
func (s *Snapshot) Namespaces(member string, kind Kind) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		r, ok := s.scopes.Get(pivotScope(member, kind))
		if !ok {
			return
		}
		for at := 0; at < r.objects.Len(); {
			first, _ := r.objects.GetAt(at)
			next := r.rank(key(first.namespace.Value()+"\x00", ""))
			if !yield(first.namespace.Value(), next-at) {
				return
			}
			at = next
		}
	}
}

// Indexed reports whether List can select by a field of a kind with its index alone: it is
// declared, and in no object of the members (sorted; nil is all) does its path end at a list
// or pass through one, which is not indexed.
func (s *Snapshot) Indexed(kind Kind, field string, members []string) bool {
	if s.checkQuery(Query{Kind: kind, Fields: map[string]string{field: ""}}) != nil {
		return false
	}
	indexed := true
	s.plans(Query{Kind: kind, Members: members}, func(r *scopeRoot, _ plan) bool {
		indexed = len(r.fields.having(nil, field, listed)) == 0
		return indexed
	})
	return indexed
}

// plans calls do for each scope that the query covers, in order.
func (s *Snapshot) plans(q Query, do func(*scopeRoot, plan) bool) {
	visit := func(r *scopeRoot) bool {
		if q.done() {
			return false
		}
		p := plan{root: r, query: &q, from: key(q.Namespace, "")}
		if r.member == q.After.Member {
			after := key(q.After.Namespace, q.After.Name)
			if compareKeys(after, p.from) >= 0 {
				p.from, p.exclusive = after, true
			}
		}
		return do(r, p)
	}
	if q.Members == nil {
		for r := range s.kindScopes(q.Kind, q.After.Member) {
			if !visit(r) {
				return
			}
		}
		return
	}
	for _, m := range q.Members {
		if m < q.After.Member {
			continue
		}
		if r, ok := s.scopes.Get(pivotScope(m, q.Kind)); ok && !visit(r) {
			return
		}
	}
}

// plan is how a query is executed on one scope.
type plan struct {
	root      *scopeRoot
	query     *Query
	from      *identity // first key
	exclusive bool      // from itself is excluded
}

// wholeRange reports whether the plan selects everything between two keys.
func (p plan) wholeRange() bool {
	q := p.query
	return q.Name == "" && q.NamePrefix == "" && len(q.Fields) == 0 && (q.Labels == nil || q.Labels.Empty())
}

// length returns the number of objects of a plan that is a range.
func (p plan) length() int {
	from, to := 0, p.root.objects.Len()
	if p.query.Namespace != "" {
		// No namespace sorts between one and itself followed by a zero byte.
		to = p.root.rank(key(p.query.Namespace+"\x00", ""))
	}
	if p.from.namespace != firstKey.namespace || p.from.name != "" {
		from = p.root.rank(p.from)
	}
	if p.exclusive && from < to {
		if e, ok := p.root.objects.GetAt(from); ok && compareKeys(e.identity, p.from) == 0 {
			from++
		}
	}
	return max(0, to-from)
}

// rank returns how many objects have a key before id.
func (r *scopeRoot) rank(id *identity) int {
	return sort.Search(r.objects.Len(), func(i int) bool {
		e, _ := r.objects.GetAt(i)
		return compareKeys(e.identity, id) >= 0
	})
}

// past reports whether a key is after the last one of the plan.
func (p plan) past(id *identity) bool {
	return p.query.Namespace != "" && id.namespace.Value() != p.query.Namespace
}

// run yields the scope's matches and reports whether to continue.
func (p plan) run(yield func(*entry) bool) bool {
	q := p.query
	byLabel := q.Labels != nil && !q.Labels.Empty()
	switch {
	case q.Name != "" || q.NamePrefix != "":
		return p.named(yield)
	case len(q.Fields) > 0:
		sets := p.root.fields.matching(labels.SelectorFromValidatedSet(q.Fields))
		return p.merge(p.root.fields.postings, sets, func(id *identity) *attrSet { return id.fields }, p.labelFilter(), yield)
	case byLabel:
		sets := p.root.labels.matching(q.Labels)
		if 2*len(sets) > p.root.objects.Len() {
			return p.scan(p.labelFilter(), yield)
		}
		if reqs, ok := q.Labels.Requirements(); ok && len(reqs) > 0 && q.Labels.Matches(labels.Set(nil)) {
			// Objects without labels match too, and have no postings.
			return p.scan(p.labelFilter(), yield)
		}
		return p.merge(p.root.labels.postings, sets, func(id *identity) *attrSet { return id.labels }, nil, yield)
	}
	return p.scan(nil, yield)
}

// named yields the objects of one name, or of names that begin alike, by a lookup in each namespace.
func (p plan) named(yield func(*entry) bool) bool {
	filters := []func(*identity) bool{p.labelFilter(), p.fieldFilter()}
	want, exact := cmp.Or(p.query.Name, p.query.NamePrefix), p.query.Name != ""
	if !strings.HasPrefix(want, p.query.NamePrefix) {
		return true
	}
	pivot := &entry{identity: p.from}
	for {
		var found *entry
		p.root.objects.Ascend(pivot, func(e *entry) bool { found = e; return false })
		if found == nil || p.past(found.identity) {
			return true
		}
		if p.query.done() {
			return false
		}
		id := found.identity
		if id.name < want {
			pivot = &entry{identity: &identity{namespace: id.namespace, name: want}}
			continue
		}
		if begins := strings.HasPrefix(id.name, want); begins && (!exact || id.name == want) {
			if !(p.exclusive && compareKeys(id, p.from) == 0) && !slices.ContainsFunc(filters, func(f func(*identity) bool) bool { return f != nil && !f(id) }) && !yield(found) {
				return false
			}
			if !exact {
				pivot = &entry{identity: &identity{namespace: id.namespace, name: id.name + "\x00"}}
				continue
			}
		}
		pivot = &entry{identity: key(id.namespace.Value()+"\x00", "")}
	}
}

// fieldFilter returns a filter by declared fields, or nil.
func (p plan) fieldFilter() func(*identity) bool {
	if len(p.query.Fields) == 0 {
		return nil
	}
	return func(id *identity) bool {
		for name, value := range p.query.Fields {
			if v, ok := id.fields.Lookup(name); !ok || v != value {
				return false
			}
		}
		return true
	}
}

// labelFilter returns a filter that evaluates each label set once, or nil.
func (p plan) labelFilter() func(*identity) bool {
	sel := p.query.Labels
	if sel == nil || sel.Empty() {
		return nil
	}
	known := map[*attrSet]bool{}
	return func(id *identity) bool {
		match, ok := known[id.labels]
		if !ok {
			match = sel.Matches(id.labels)
			known[id.labels] = match
		}
		return match
	}
}

func (p plan) scan(filter func(*identity) bool, yield func(*entry) bool) bool {
	more := true
	p.root.objects.Ascend(&entry{identity: p.from}, func(e *entry) bool {
		if p.past(e.identity) {
			return false
		}
		if p.exclusive && compareKeys(e.identity, p.from) == 0 || filter != nil && !filter(e.identity) {
			return true
		}
		more = yield(e)
		return more
	})
	return more
}

// merge yields the objects of several sets in the order of their keys.
func (p plan) merge(postings *btree.BTreeG[*identity], sets []*attrSet, of func(*identity) *attrSet, filter func(*identity) bool, yield func(*entry) bool) bool {
	h := make(postingHeap, 0, len(sets))
	for _, set := range sets {
		pivot := *p.from
		pivot.labels, pivot.fields = set, set // the index uses one of the two
		it := &posting{iter: postings.Iter(), set: set, of: of}
		if it.iter.Seek(&pivot) && it.valid() {
			h = append(h, it)
		}
	}
	heap.Init(&h)
	pivot := &entry{}
	for len(h) > 0 {
		id := h[0].iter.Item()
		if h[0].iter.Next() && h[0].valid() {
			heap.Fix(&h, 0)
		} else {
			heap.Pop(&h)
		}
		if p.past(id) {
			return true
		}
		if p.exclusive && compareKeys(id, p.from) == 0 || filter != nil && !filter(id) {
			continue
		}
		// The posting identifies the object; its newest version is in the tree.
		pivot.identity = id
		if e, ok := p.root.objects.Get(pivot); ok && !yield(e) {
			return false
		}
	}
	return true
}

// posting iterates over the objects of one set.
type posting struct {
	iter btree.IterG[*identity]
	set  *attrSet
	of   func(*identity) *attrSet
}

func (p *posting) valid() bool { return p.of(p.iter.Item()) == p.set }

type postingHeap []*posting

func (h postingHeap) Len() int           { return len(h) }
func (h postingHeap) Less(i, j int) bool { return compareKeys(h[i].iter.Item(), h[j].iter.Item()) < 0 }
func (h postingHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push adds a posting.
func (h *postingHeap) Push(x any) { *h = append(*h, x.(*posting)) }

// Pop removes the last posting.
func (h *postingHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// Objects yields the objects of one scope, by namespace and name.
func (s *Snapshot) Objects(member string, kind Kind) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		if r, ok := s.scope(member, kind); ok {
			r.objects.Scan(func(e *entry) bool { return yield(Object{r.scopeID, e}) })
		}
	}
}
