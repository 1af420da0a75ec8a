package selection

import (
	"context"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// Listing is a selection of a snapshot's objects within what may be read.
type Listing struct {
	Snapshot  *aggregate.Snapshot
	Selector  *Selector
	Grants    *authz.Grants
	Members   []string // sorted; nil: all that are granted
	Namespace string   // "": all
	After     aggregate.Position
}

// subquery is a query and the residual to match.
type subquery struct {
	query    aggregate.Query
	residual *residual
}

// subqueries returns the queries that, in this order, find everything: one for members that
// may be read in full, one for each namespace of the others.
func (f *Listing) subqueries() []subquery {
	members := f.Grants.Members()
	switch {
	case f.Grants.Empty():
		return nil
	case f.Members != nil && f.Grants.Everything():
		members = f.Members
	case f.Members != nil:
		members = intersect(members, f.Members)
	}
	whole, rest := f.Selector.Query(f.Snapshot, members, f.Namespace)
	whole.After = f.After
	if f.Grants.Everything() {
		return []subquery{{whole, rest}}
	}
	var parts []subquery
	from := 0
	flush := func(to int) {
		if from < to {
			q := whole
			q.Members = whole.Members[from:to]
			parts = append(parts, subquery{q, rest})
		}
		from = to + 1
	}
	for i, name := range whole.Members {
		reach := f.Grants.Member(name)
		if reach.All || whole.Namespace != "" && reach.Allows(whole.Namespace) {
			continue
		}
		flush(i)
		if whole.Namespace != "" {
			continue
		}
		for _, namespace := range reach.Namespaces {
			q := whole
			q.Members, q.Namespace = whole.Members[i:i+1], namespace
			if namespace == "" { // in the index "" is every namespace
				parts = append(parts, subquery{q, rest.clusterScoped()})
				continue
			}
			parts = append(parts, subquery{q, rest})
		}
	}
	flush(len(whole.Members))
	return parts
}

// clusterScoped returns a residual that matches cluster-scoped objects only.
func (r *residual) clusterScoped() *residual {
	out := &residual{}
	if r != nil {
		*out = *r
	}
	out.entries = append(slices.Clone(out.entries), test[aggregate.Object]{of: aggregate.Object.Namespace})
	return out
}

// intersect returns the elements of both of two sorted lists; never nil.
func intersect(a, b []string) []string {
	out := []string{}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			out = append(out, a[i])
			i, j = i+1, j+1
		}
	}
	return out
}

// List yields the objects by member, namespace and name, after After. An error, of a body
// that cannot be decoded or of the context, is yielded last.
func (f *Listing) List(ctx context.Context) iter.Seq2[aggregate.Object, error] {
	return func(yield func(aggregate.Object, error) bool) {
		for _, p := range f.subqueries() {
			p.query.Labels, p.query.Done = untilDone(ctx, p.query.Labels), ctx.Done()
			objects, err := f.Snapshot.List(p.query)
			if err != nil {
				yield(aggregate.Object{}, err)
				return
			}
			for o, err := range matchParallel(ctx, objects, p.residual) {
				if !yield(o, err) || err != nil {
					return
				}
			}
			if err := ctx.Err(); err != nil { // the list is incomplete
				yield(aggregate.Object{}, err)
				return
			}
		}
	}
}

// untilDone returns a selector that matches nothing once the context has ended: the index
// matches every set of labels before it yields an object. The caller must check the context
// afterwards.
func untilDone(ctx context.Context, of labels.Selector) labels.Selector {
	if of == nil {
		return nil
	}
	return &cancellable{Selector: of, done: func() bool { return ctx.Err() != nil }}
}

// cancellable belongs to one goroutine.
type cancellable struct {
	labels.Selector
	done    func() bool
	count   int
	stopped bool
}

// Matches implements labels.Selector.
func (b *cancellable) Matches(l labels.Labels) bool {
	if b.count++; b.count%64 == 0 && !b.stopped {
		b.stopped = b.done()
	}
	return !b.stopped && b.Selector.Matches(l)
}

// needsBody reports whether a match needs the body.
func (r *residual) needsBody() bool { return r != nil && (len(r.terms) > 0 || r.flatTerms != nil) }

// Count returns the number of objects that List yields. If only members, namespaces and
// names are selected, its cost is independent of that number.
func (f *Listing) Count(ctx context.Context) (int, error) {
	total := 0
	for _, p := range f.subqueries() {
		p.query.Labels, p.query.Done = untilDone(ctx, p.query.Labels), ctx.Done()
		if p.residual == nil {
			n, err := f.Snapshot.Count(p.query)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return 0, err
			}
			total += n
			continue
		}
		objects, err := f.Snapshot.List(p.query)
		if err != nil {
			return 0, err
		}
		for _, err := range matchParallel(ctx, objects, p.residual) {
			if err != nil {
				return 0, err
			}
			total++
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// Namespaces yields the number of objects that List yields in each namespace, in order
// within each member, if that is known without iterating over them: only members and
// namespaces are selected, and there is no After.
func (f *Listing) Namespaces() (iter.Seq2[string, int], bool) {
	parts := f.subqueries()
	for _, p := range parts {
		if q := p.query; p.residual != nil || q.Name != "" || q.NamePrefix != "" || q.Labels != nil || len(q.Fields) > 0 || q.After != (aggregate.Position{}) {
			return nil, false
		}
	}
	return func(yield func(string, int) bool) {
		for _, p := range parts {
			members := p.query.Members
			if members == nil {
				members = f.Visible()
			}
			for _, m := range members {
				if !f.namespaces(p.query, m, yield) {
					return
				}
			}
		}
	}, true
}

func (f *Listing) namespaces(q aggregate.Query, member string, yield func(string, int) bool) bool {
	if q.Namespace == "" {
		for namespace, n := range f.Snapshot.Namespaces(member, q.Kind) {
			if !yield(namespace, n) {
				return false
			}
		}
		return true
	}
	q.Members = []string{member}
	n, err := f.Snapshot.Count(q) // fails for fields only, and there are none
	return err != nil || n == 0 || yield(q.Namespace, n)
}

// Visible returns the members of the snapshot that the grants and the selection admit, by
// name: those that a response is about.
func (f *Listing) Visible() []string {
	out := []string{}
	for m := range f.Snapshot.Members() {
		if f.Grants.Member(m.Name).Empty() || !f.Selector.MatchesMember(m) {
			continue
		}
		out = append(out, m.Name)
	}
	if f.Members != nil {
		return intersect(out, f.Members)
	}
	return out
}
