package state

import (
	"iter"
	"sync"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/projection"
)

// Export is what other processes that share a fleet need to know of the members that are judged here: members and
// scopes, and of each object what policies read of it. It is immutable, costs nothing to take, and is encoded as it is
// read; any number of goroutines may use it. Keeping it keeps its state.
type Export struct {
	s       *State
	writers sync.Pool // of *projection.Writer
}

// Export returns what other processes need of the members that are judged here; nil where the engine's options do not
// ask for it.
func (s *State) Export() *Export {
	if !s.parts.Exports {
		return nil
	}
	return &Export{s: s}
}

// Revision returns the revision of this process's snapshot.
func (x *Export) Revision() aggregate.Revision { return x.s.Snapshot.Revision() }

// has reports whether a member is exported.
func (x *Export) has(member string) bool {
	m, ok := x.s.Snapshot.Member(member)
	return ok && m.Role == aggregate.Judge
}

// Members yields the members that are judged here, by name. Their slices must not be changed.
func (x *Export) Members() iter.Seq[aggregate.Member] {
	return func(yield func(aggregate.Member) bool) {
		for m := range x.s.Snapshot.Members() {
			if m.Role == aggregate.Judge && !yield(m) {
				return
			}
		}
	}
}

// Member returns a member that is judged here.
func (x *Export) Member(name string) (aggregate.Member, bool) {
	m, ok := x.s.Snapshot.Member(name)
	return m, ok && m.Role == aggregate.Judge
}

// Scopes yields the scopes of a member that is judged here, by kind. Version names the projection of their objects; it
// is "" where nothing reads the kind, so that there are none.
func (x *Export) Scopes(member string) iter.Seq[aggregate.ScopeInfo] {
	return func(yield func(aggregate.ScopeInfo) bool) {
		if !x.has(member) {
			return
		}
		for s := range x.s.Snapshot.Scopes(member) {
			if !yield(x.projected(s)) {
				return
			}
		}
	}
}

// Scope returns one of them. One that has not been opened is not exported: who knows the member's kinds knows as much
// of it.
func (x *Export) Scope(member string, kind aggregate.Kind) (aggregate.ScopeInfo, bool) {
	s, ok := x.s.Snapshot.Scope(member, kind)
	if !ok || !x.has(member) {
		return aggregate.ScopeInfo{}, false
	}
	return x.projected(s), true
}

func (x *Export) projected(s aggregate.ScopeInfo) aggregate.ScopeInfo {
	return aggregate.ScopeInfo{
		Member: s.Member, Kind: s.Kind, Resource: s.Resource, Status: s.Status,
		Version: fleetview.ProjectedAs(x.s.parts.Projections.Of(s.Kind).Digest, s.Version),
	}
}

// Records yields the records of a scope, by namespace and name. The record and its body are overwritten by the next one.
// An error of yield ends it and is returned.
func (x *Export) Records(member string, kind aggregate.Kind, yield func(*aggregate.Record) error) error {
	if !x.has(member) || !x.s.parts.Projections.Reads(kind) {
		return nil
	}
	var rec aggregate.Record
	for o := range x.s.parts.Fleet.Objects(kind, member) {
		if !x.record(o, &rec) {
			continue
		}
		if err := yield(&rec); err != nil {
			return err
		}
	}
	return nil
}

// Record fills in the record of one object, whose body takes the memory of the last. ok is false for an object that is
// not there, or of which nobody needs anything.
func (x *Export) Record(ref aggregate.Ref, into *aggregate.Record) (ok bool, err error) {
	if !x.has(ref.Member) {
		return false, nil
	}
	o, there := x.s.Snapshot.Get(ref)
	return there && x.record(o, into), nil
}

// record fills in a record. Owners are left out: no policy sees them but in the body.
func (x *Export) record(o aggregate.Object, into *aggregate.Record) bool {
	w, _ := x.writers.Get().(*projection.Writer)
	if w == nil {
		w = &projection.Writer{}
	}
	defer x.writers.Put(w)
	parts := &x.s.parts
	body, ok := w.Append(into.Body[:0], parts.Projections.Of(o.Ref().Kind), o, func(id uint32) *matview.View { return parts.ByID[id] })
	*into = aggregate.Record{Namespace: o.Namespace(), Name: o.Name(), UID: o.UID(), ResourceVersion: o.ResourceVersion(), Labels: o.Labels(), Body: body}
	return ok
}
