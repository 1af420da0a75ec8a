package policyquery

import (
	"context"
	"maps"
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// callerReader knows what a caller of the query API may list. It asks for the grants
// of a kind when the kind is first read. What is held of it in a member is read by the
// resource that it was read under there, in the snapshot that is asked about.
type callerReader struct {
	ctx          context.Context //nolint:containedctx // lives for one request, in methods that take none
	caller       queryapi.Caller
	visible      []string  // members, sorted
	onlyHolders  bool      // ask of a kind in members alone that have it
	visibleUntil time.Time // until when they are relied on
	source       Kinds
	kinds        map[aggregate.Kind]bool // that members serve
	changed      <-chan struct{}         // closed when there are other kinds
	grants       map[aggregate.Kind]*queryapi.Grants
	err          error // the first of asking
}

// Kinds returns the kinds that members serve, and a channel that is closed when one is
// new or gone. The map is shared.
type Kinds func() (map[aggregate.Kind]bool, <-chan struct{})

// newCallerReader returns the reader of a snapshot, and of those with the same members.
func newCallerReader(ctx context.Context, caller queryapi.Caller, kinds Kinds, at *aggregate.Snapshot) (*callerReader, error) {
	visible, seen, err := caller.Visible(ctx, at)
	if err != nil {
		return nil, err
	}
	r := &callerReader{
		ctx: ctx, caller: caller, visible: visible, visibleUntil: seen, source: kinds,
		grants: map[aggregate.Kind]*queryapi.Grants{},
	}
	r.kinds, r.changed = kinds()
	return r, nil
}

// kindsChanged reports whether one that the reader was asked about is served now where
// nobody did, or not any more: others are nothing to it, as a member invents them.
func (r *callerReader) kindsChanged() bool {
	select {
	case <-r.changed:
	default:
		return false
	}
	kinds, changed := r.source()
	for kind := range r.grants {
		if kinds[kind] != r.kinds[kind] {
			return true
		}
	}
	r.kinds, r.changed = kinds, changed
	return false
}

// Member implements policy.Reader.
func (r *callerReader) Member(member string) bool {
	_, ok := slices.BinarySearch(r.visible, member)
	return ok
}

// snapshotReader is a policy.Reader of one snapshot.
type snapshotReader struct {
	*callerReader

	snapshot *aggregate.Snapshot
}

// Scope implements policy.Reader.
func (r snapshotReader) Scope(member string, kind aggregate.Kind) bool {
	return !r.grant(r.snapshot, member, kind).Empty()
}

// Objects implements policy.Reader.
func (r snapshotReader) Objects(member string, kind aggregate.Kind, namespace string) bool {
	return r.grant(r.snapshot, member, kind).Allows(namespace)
}

// probingReader is a readerOf for who may not wait: it asks nobody, but notes of which kinds
// somebody has to be asked, and ends what reads them.
type probingReader struct {
	snapshotReader

	cancel  context.CancelFunc
	missing []aggregate.Kind
}

// maxProbedKinds is how many kinds a query is tried for one after another: one that reads
// more is asked about all that there are.
const maxProbedKinds = 4

// Scope implements policy.Reader.
func (r *probingReader) Scope(member string, kind aggregate.Kind) bool {
	return r.hasGrants(member, kind) && r.snapshotReader.Scope(member, kind)
}

// Objects implements policy.Reader.
func (r *probingReader) Objects(member string, kind aggregate.Kind, namespace string) bool {
	return r.hasGrants(member, kind) && r.snapshotReader.Objects(member, kind, namespace)
}

func (r *probingReader) hasGrants(member string, kind aggregate.Kind) bool {
	g, asked := r.grants[kind]
	if asked && g.Covers(r.snapshot.Resource(member, kind)) || !r.kinds[kind] && len(r.snapshot.Resources(kind)) == 0 {
		return true
	}
	if r.missing == nil {
		r.missing = []aggregate.Kind{kind}
		if len(r.grants) >= maxProbedKinds {
			for other := range r.snapshot.Kinds() {
				if _, asked := r.grants[other]; !asked && other != kind {
					r.missing = append(r.missing, other)
				}
			}
		}
		r.cancel()
	}
	return false
}

// grant returns what may be read of a kind in a member, as a snapshot holds it.
func (r *callerReader) grant(snapshot *aggregate.Snapshot, member string, kind aggregate.Kind) queryapi.MemberGrant {
	resource := snapshot.Resource(member, kind)
	return r.grantsOf(snapshot, kind, resource).ForResource(resource).Member(member)
}

// everything reports whether all of a kind may be read in all members, whatever it was
// read under in a snapshot.
func (r *callerReader) everything(snapshot *aggregate.Snapshot, kind aggregate.Kind) bool {
	g := r.grantsOf(snapshot, kind, "")
	return g.Everything() && !slices.ContainsFunc(snapshot.Resources(kind), func(resource string) bool { return !g.Covers(resource) })
}

// grantsOf returns the grants of a kind as a snapshot holds it, nil when nobody can tell.
func (r *callerReader) grantsOf(snapshot *aggregate.Snapshot, kind aggregate.Kind, resource string) *queryapi.Grants {
	g, asked := r.grants[kind]
	if asked && g.Covers(resource) {
		return g
	}
	g = nil
	if (r.kinds[kind] || len(snapshot.Resources(kind)) > 0) && r.err == nil {
		g, r.err = r.fetchGrants(snapshot, kind)
	}
	r.grants[kind] = g
	return g
}

// fetchGrants asks what may be listed of a kind. Who looks only at what there is asks nobody
// about members that have nothing of it, or that may not be seen.
func (r *callerReader) fetchGrants(snapshot *aggregate.Snapshot, kind aggregate.Kind) (*queryapi.Grants, error) {
	if !r.onlyHolders {
		return r.caller.Grants(r.ctx, "list", kind, snapshot)
	}
	var members []string
	for scope := range snapshot.ScopesOf(kind) {
		if r.Member(scope.Member) {
			members = append(members, scope.Member)
		}
	}
	if members == nil {
		return nil, nil
	}
	return r.caller.GrantsIn(r.ctx, "list", kind, snapshot, members)
}

// maxGrantAge is how long grants are relied on, at most.
const maxGrantAge = 30 * time.Second

// expires returns when what may be read must be asked again, of a reader that was made at
// a time: whoever may read everything now may be told otherwise, too. Which members may
// be seen was found out before, maybe for somebody else.
func (r *callerReader) expires(made time.Time) time.Time {
	until := made.Add(maxGrantAge)
	if !r.visibleUntil.IsZero() && r.visibleUntil.Before(until) {
		until = r.visibleUntil
	}
	for _, g := range r.grants {
		if u := g.Expires(); !u.IsZero() && u.Before(until) {
			until = u
		}
	}
	return until
}

// equal reports whether a reader that was made later may read of a snapshot just what this
// one was asked about.
func (r *callerReader) equal(later *callerReader, snapshot *aggregate.Snapshot) bool {
	if !slices.Equal(r.visible, later.visible) {
		return false
	}
	for kind, g := range r.grants {
		if !g.Equal(later.grantsOf(snapshot, kind, "")) {
			return false
		}
	}
	return later.err == nil
}

// sameResources reports whether what was asked about was read under the same resources
// in two snapshots.
func (r *callerReader) sameResources(a, b *aggregate.Snapshot) bool {
	for kind := range r.grants {
		if !slices.Equal(a.Resources(kind), b.Resources(kind)) {
			return false
		}
		if len(a.Resources(kind)) > 1 && !maps.Equal(resourcesOf(a, kind), resourcesOf(b, kind)) {
			return false
		}
	}
	return true
}

// resourcesOf returns what a kind was read under, by member.
func resourcesOf(s *aggregate.Snapshot, kind aggregate.Kind) map[string]string {
	out := map[string]string{}
	for scope := range s.ScopesOf(kind) {
		out[scope.Member] = scope.Resource
	}
	return out
}
