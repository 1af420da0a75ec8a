package policyquery

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery/internal/reach"
	"federator.dev/federator/pkg/queryapi"
)

// callerReader implements policy.Reader within the grants of a caller of the query API. It
// fetches the grants of a kind when the kind is first read. Objects of a member are
// authorized by the resource that they were read under there, in the given snapshot.
type callerReader struct {
	ctx          context.Context // lives for one request, in methods that take none
	caller       queryapi.Caller
	visible      []string // members, sorted
	among        []string // fetch the grants of a kind for these members; nil: for those of the snapshot
	there        *elsewhere
	onlyHolders  bool      // fetch the grants of a kind only for members that hold it
	visibleUntil time.Time // when visible expires
	source       Kinds
	kinds        map[aggregate.Kind]bool // served by members
	changed      <-chan struct{}         // closed when kinds changes
	grants       map[aggregate.Kind]*queryapi.Grants
	sources      map[string]bool // PolicySources whose external documents may be read, as far as was asked
	err          error           // the first error of fetching grants
}

// elsewhere is what a caller may read of members that other processes read, and policies see. There is what these have told: their
// objects are authorized by the resources that they were read under there.
type elsewhere struct {
	callerReader

	told *aggregate.Snapshot
}

// Kinds returns the kinds that members serve, and a channel that is closed when that
// changes. The map is shared.
type Kinds func() (map[aggregate.Kind]bool, <-chan struct{})

// newCallerReader returns a reader of a snapshot, and of others with the same members.
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

// newStateReader returns a reader of a state's snapshot, which knows what may be read of all members that policies see.
func newStateReader(ctx context.Context, caller queryapi.Caller, kinds Kinds, state *policy.State) (*callerReader, error) {
	r, err := newCallerReader(ctx, caller, kinds, state.Snapshot)
	if err != nil {
		return nil, err
	}
	members := state.Elsewhere()
	if members == nil {
		return r, nil
	}
	return r, r.addElsewhere(members, state.Told())
}

// addElsewhere has a reader know what may be read of members, in order, that other processes judge, by what these have told.
func (r *callerReader) addElsewhere(members []string, told *aggregate.Snapshot) error {
	there, err := newReaderAmong(r.ctx, r.caller, r.source, members)
	if err != nil {
		return err
	}
	there.onlyHolders, there.kinds = r.onlyHolders, r.kinds
	r.there = &elsewhere{*there, told}
	return nil
}

// newReaderAmong returns a reader that knows what may be read of some members, in order.
func newReaderAmong(ctx context.Context, caller queryapi.Caller, kinds Kinds, members []string) (*callerReader, error) {
	visible, until, err := caller.VisibleIn(ctx, members)
	if err != nil {
		return nil, err
	}
	r := &callerReader{
		ctx: ctx, caller: caller, visible: visible, visibleUntil: until, among: members, source: kinds, grants: map[aggregate.Kind]*queryapi.Grants{},
	}
	r.kinds, r.changed = kinds()
	return r, nil
}

// isElsewhere reports whether another process reads a member.
func (r *callerReader) isElsewhere(member string) bool {
	if r.there == nil {
		return false
	}
	_, ok := slices.BinarySearch(r.there.among, member)
	return ok
}

// kindsChanged reports whether a kind that was read is now served where it was not, or the
// other way round. Other kinds are ignored, as a member may invent any number of them.
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

// MayReadMember implements policy.Reader.
func (r *callerReader) MayReadMember(member string) bool {
	_, ok := slices.BinarySearch(r.visible, member)
	return ok || r.there != nil && r.there.MayReadMember(member)
}

// MayReadClusters implements policy.Reader. No grant of the query API is about Clusters: who may
// read them reads them from the hub.
func (r *callerReader) MayReadClusters() bool { return false }

// MayReadSource implements policy.Reader: who may get the PolicySource on the hub.
func (r *callerReader) MayReadSource(source string) bool {
	if r.err != nil {
		return false
	}
	may, known := r.sources[source]
	if !known {
		if may, r.err = r.caller.HubAllowsNamed(r.ctx, "get", string(HubPolicySources), source); r.err != nil {
			return false
		}
		if r.sources == nil {
			r.sources = map[string]bool{}
		}
		r.sources[source] = may
	}
	return may
}

// seesAllMembers reports whether no member of a snapshot, or that policies see, is hidden from the caller.
func (r *callerReader) seesAllMembers(at *aggregate.Snapshot) bool {
	n := 0
	for range at.Members() {
		n++
	}
	return len(r.visible) == n && (r.there == nil || len(r.there.visible) == len(r.there.among))
}

// readable is what a caller may read of the members that there are, for what the hub says of them. It is of one request.
type readable interface {
	reach.Source

	// Need has the members known, and the grants of kinds: nothing else is.
	Need(ctx context.Context, kinds ...aggregate.Kind) error
	// All reports whether no member is hidden from the caller.
	All() bool
	// Absent returns the members, of those that the caller may read, that no process answers for which shares the fleet.
	Absent() []string
}

// readableHere is what a caller may read of the members of a snapshot.
type readableHere struct {
	*callerReader

	snapshot *aggregate.Snapshot
}

// Need implements readable: grants are fetched when they are read.
func (readableHere) Need(context.Context, ...aggregate.Kind) error { return nil }

// UID implements readable.
func (r readableHere) UID(member string) (string, bool) {
	m, exists := r.snapshot.Member(member)
	return m.UID, exists && r.MayReadMember(member)
}

// Grant implements readable.
func (r readableHere) Grant(member string, kind aggregate.Kind) queryapi.MemberGrant {
	return r.grant(r.snapshot, member, kind)
}

// Failed implements readable.
func (r readableHere) Failed() error { return r.err }

// All implements readable.
func (r readableHere) All() bool { return r.seesAllMembers(r.snapshot) }

// Absent implements readable.
func (readableHere) Absent() []string { return nil }

// fleetReader is what says who may read what of the members.
type fleetReader struct {
	kinds Kinds
	index *aggregate.Index
}

// here returns what a caller may read of the members of this process.
func (f fleetReader) here(ctx context.Context, caller queryapi.Caller) (readable, error) {
	snapshot := f.index.Snapshot()
	reader, err := newCallerReader(ctx, caller, f.kinds, snapshot)
	if err != nil {
		return nil, err
	}
	return readableHere{reader, snapshot}, nil
}

// answer has a query answered by what the caller may read here, or says that to another process that asks for it.
func (f fleetReader) answer(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, serve func(of func() (readable, error)) error) error {
	served, err := reach.ServePart(w, r, f.index.Snapshot(), func() (reach.Source, error) { return f.here(r.Context(), caller) })
	if served {
		return err
	}
	return serve(func() (readable, error) { return f.here(r.Context(), caller) })
}

// everywhere returns what a caller may read of the members of all processes.
func everywhere(caller queryapi.Caller, fleet queryapi.SharedFleet) func() (readable, error) {
	return func() (readable, error) { return reach.New(caller, fleet), nil }
}

// snapshotReader is a policy.Reader of one snapshot.
type snapshotReader struct {
	*callerReader

	snapshot *aggregate.Snapshot
}

// MayReadScope implements policy.Reader.
func (r snapshotReader) MayReadScope(member string, kind aggregate.Kind) bool {
	return !r.grant(r.snapshot, member, kind).Empty()
}

// MayReadObjects implements policy.Reader.
func (r snapshotReader) MayReadObjects(member string, kind aggregate.Kind, namespace string) bool {
	return r.grant(r.snapshot, member, kind).Allows(namespace)
}

// probingReader is a snapshotReader that never waits for the hub: it collects the kinds whose
// grants are missing, and cancels the query that reads them.
type probingReader struct {
	snapshotReader

	cancel  context.CancelFunc
	missing []aggregate.Kind
	sources bool // grants of PolicySources are missing
}

// MayReadSource implements policy.Reader.
func (r *probingReader) MayReadSource(source string) bool {
	may, known := r.callerReader.sources[source]
	if !known && !r.sources {
		r.sources = true
		r.cancel()
	}
	return may
}

// maxProbedKinds bounds how often a query is retried for another kind. For one that reads
// more kinds, the grants of all kinds are fetched at once.
const maxProbedKinds = 4

// MayReadScope implements policy.Reader.
func (r *probingReader) MayReadScope(member string, kind aggregate.Kind) bool {
	return r.hasGrants(member, kind) && r.snapshotReader.MayReadScope(member, kind)
}

// MayReadObjects implements policy.Reader.
func (r *probingReader) MayReadObjects(member string, kind aggregate.Kind, namespace string) bool {
	return r.hasGrants(member, kind) && r.snapshotReader.MayReadObjects(member, kind, namespace)
}

func (r *probingReader) hasGrants(member string, kind aggregate.Kind) bool {
	of, at := r.callerReader, r.snapshot
	if r.isElsewhere(member) {
		of, at = &r.there.callerReader, r.there.told
	}
	g, fetched := of.grants[kind]
	if fetched && g.Covers(at.Resource(member, kind)) || !of.kinds[kind] && len(at.Resources(kind)) == 0 {
		return true
	}
	if r.missing == nil {
		r.missing = []aggregate.Kind{kind}
		if len(r.grants) >= maxProbedKinds {
			for other := range r.snapshot.Kinds() {
				if _, fetched := r.grants[other]; !fetched && other != kind {
					r.missing = append(r.missing, other)
				}
			}
		}
		r.cancel()
	}
	return false
}

// fetch fetches the grants of kinds, unless they are known. Its error is that of any grants.
func (r *callerReader) fetch(snapshot *aggregate.Snapshot, kinds []aggregate.Kind) error {
	for _, kind := range kinds {
		r.grantsOf(snapshot, kind, snapshot.Resource("", kind))
		if r.there != nil {
			r.there.grantsOf(r.there.told, kind, r.there.told.Resource("", kind))
			r.takeError()
		}
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// fetchSources fetches which sources of external documents may be read.
func (r *callerReader) fetchSources(documents *policy.External) error {
	for source := range documents.Sources() {
		r.MayReadSource(source)
	}
	return r.err
}

// grant returns what may be read of a kind in a member, as held by a snapshot, or as told by another process.
func (r *callerReader) grant(snapshot *aggregate.Snapshot, member string, kind aggregate.Kind) queryapi.MemberGrant {
	if r.isElsewhere(member) {
		defer r.takeError()
		return r.there.grant(r.there.told, member, kind)
	}
	resource := snapshot.Resource(member, kind)
	return r.grantsOf(snapshot, kind, resource).ForResource(resource).Member(member)
}

// everything reports whether all objects of a kind may be read in all members, whatever
// resource they were read under in a snapshot.
func (r *callerReader) everything(snapshot *aggregate.Snapshot, kind aggregate.Kind) bool {
	g := r.grantsOf(snapshot, kind, "")
	if !g.Everything() || slices.ContainsFunc(snapshot.Resources(kind), func(resource string) bool { return !g.Covers(resource) }) {
		return false
	}
	if r.there == nil {
		return true
	}
	defer r.takeError()
	return r.there.everything(r.there.told, kind)
}

// takeError takes an error of fetching grants elsewhere.
func (r *callerReader) takeError() {
	if r.err == nil {
		r.err = r.there.err
	}
}

// grantsOf returns the grants of a kind as held by a snapshot; nil when they are unknown.
func (r *callerReader) grantsOf(snapshot *aggregate.Snapshot, kind aggregate.Kind, resource string) *queryapi.Grants {
	g, fetched := r.grants[kind]
	if fetched && g.Covers(resource) {
		return g
	}
	g = nil
	if (r.kinds[kind] || len(snapshot.Resources(kind)) > 0) && r.err == nil {
		g, r.err = r.fetchGrants(snapshot, kind)
	}
	r.grants[kind] = g
	return g
}

// fetchGrants returns what may be listed of a kind. With onlyHolders members are not
// reviewed that hold nothing of it or are not visible.
func (r *callerReader) fetchGrants(snapshot *aggregate.Snapshot, kind aggregate.Kind) (*queryapi.Grants, error) {
	switch {
	case r.onlyHolders:
	case r.among != nil:
		return r.caller.GrantsIn(r.ctx, "list", kind, snapshot, r.among)
	default:
		return r.caller.Grants(r.ctx, "list", kind, snapshot)
	}
	var members []string
	for scope := range snapshot.ScopesOf(kind) {
		if r.MayReadMember(scope.Member) {
			members = append(members, scope.Member)
		}
	}
	if members == nil {
		return nil, nil
	}
	return r.caller.GrantsIn(r.ctx, "list", kind, snapshot, members)
}

// maxGrantAge bounds how long grants are used before they are renewed.
const maxGrantAge = 30 * time.Second

// expires returns when the grants of a reader that was made at a time must be renewed, also
// those of a caller that may read everything. Visibility of members may be cached from
// earlier, and expire earlier.
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
	if r.there != nil {
		if u := r.there.expires(made); u.Before(until) {
			until = u
		}
	}
	return until
}

// equal reports whether a reader that was made later allows the same of a snapshot, for the
// kinds that this one has read.
func (r *callerReader) equal(later *callerReader, snapshot *aggregate.Snapshot) bool {
	if !slices.Equal(r.visible, later.visible) || !slices.Equal(r.among, later.among) || (r.there == nil) != (later.there == nil) {
		return false
	}
	if r.there != nil && !r.there.equal(&later.there.callerReader, later.there.told) {
		return false
	}
	for kind, g := range r.grants {
		if !g.Equal(later.grantsOf(snapshot, kind, "")) {
			return false
		}
	}
	for source, may := range r.sources {
		if may != later.MayReadSource(source) {
			return false
		}
	}
	return later.err == nil
}

// sameResources reports whether the kinds that were read are served under the same
// resources in two snapshots.
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

// resourcesOf returns the resource that a kind was read under, by member.
func resourcesOf(s *aggregate.Snapshot, kind aggregate.Kind) map[string]string {
	out := map[string]string{}
	for scope := range s.ScopesOf(kind) {
		out[scope.Member] = scope.Resource
	}
	return out
}
