package answers

import (
	"context"
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// grantedReader is a policy.Reader of what a caller of the query API may list.
// It asks for the grants of a kind when the kind is first read.
type grantedReader struct {
	ctx     context.Context //nolint:containedctx // lives for one request, in methods that take none
	caller  queryapi.Caller
	visible []string                // members, sorted
	kinds   map[aggregate.Kind]bool // that members serve
	changed <-chan struct{}         // closed when there may be other kinds
	grants  map[aggregate.Kind]*queryapi.Grants
	err     error // the first of asking
}

func newReader(ctx context.Context, caller queryapi.Caller, resources func() ([]queryapi.Served, <-chan struct{})) (*grantedReader, error) {
	visible, err := caller.Visible(ctx)
	if err != nil {
		return nil, err
	}
	r := &grantedReader{
		ctx: ctx, caller: caller, visible: visible,
		kinds: map[aggregate.Kind]bool{}, grants: map[aggregate.Kind]*queryapi.Grants{},
	}
	var served []queryapi.Served
	served, r.changed = resources()
	for _, s := range served {
		r.kinds[s.Kind] = true
	}
	return r, nil
}

// Member implements policy.Reader.
func (r *grantedReader) Member(member string) bool {
	_, ok := slices.BinarySearch(r.visible, member)
	return ok
}

// Scope implements policy.Reader.
func (r *grantedReader) Scope(member string, kind aggregate.Kind) bool {
	g := r.of(kind)
	return g != nil && !g.Member(member).None()
}

// Objects implements policy.Reader.
func (r *grantedReader) Objects(member string, kind aggregate.Kind, namespace string) bool {
	g := r.of(kind)
	return g != nil && g.Member(member).Allows(namespace)
}

// of returns the grants of a kind, nil when nobody can tell.
func (r *grantedReader) of(kind aggregate.Kind) *queryapi.Grants {
	if g, asked := r.grants[kind]; asked {
		return g
	}
	var g *queryapi.Grants
	if r.kinds[kind] && r.err == nil {
		g, r.err = r.caller.Grants(r.ctx, "list", kind)
	}
	r.grants[kind] = g
	return g
}

// everywhere reports whether all objects of a kind in a member may be read.
func (r *grantedReader) everywhere(member string, kind aggregate.Kind) bool {
	g := r.of(kind)
	return g != nil && g.Member(member).All
}

// maxAge is how long grants are relied on, at most.
const maxAge = 30 * time.Second

// until returns when what may be read must be asked again, of a reader that was made at
// a time: whoever may read everything now may be told otherwise, too.
func (r *grantedReader) until(made time.Time) time.Time {
	until := made.Add(maxAge)
	for _, g := range r.grants {
		if u := g.Until(); !u.IsZero() && u.Before(until) {
			until = u
		}
	}
	return until
}

// same reports whether a reader that was made later may read just what this one was asked
// about.
func (r *grantedReader) same(later *grantedReader) bool {
	if !slices.Equal(r.visible, later.visible) {
		return false
	}
	for kind, g := range r.grants {
		if !g.Same(later.of(kind)) {
			return false
		}
	}
	return later.err == nil
}
