// Package fleetview joins two indexes of one fleet for the policies that read it: the one of this process, and the
// one of what its peers have told of the members that they read.
//
// A member is taken from the own index where it is there, unless this process only begins to read it (role Joining, or StandbyUnread)
// and a peer knows more of it. Otherwise it is taken from the peers' index: such a member is away. This process
// judges the members that are in its own index with role Judge, and all members where it has no peers.
//
// A View has what policies use of an [aggregate.Snapshot], in the same order as one index with all of it. Without
// peers it passes on what the snapshot has. Views are immutable; any number of goroutines may use them.
package fleetview

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"federator.dev/federator/pkg/aggregate"
)

// View is an immutable state of the whole fleet.
type View struct {
	own, peers *aggregate.Snapshot // peers is nil where there are none
	*places
	projections Projections
}

// Projections say what is to be known of objects that are away.
type Projections interface {
	// Reads reports whether any policy reads objects of a kind besides its subjects.
	Reads(kind aggregate.Kind) bool
	// Knows reports whether objects of a kind that a peer has told of at a version have all that policies read.
	Knows(kind aggregate.Kind, version string) bool
}

// places are the members that are not judged here. They change with members only.
type places struct {
	of   map[string]place
	away []string // sorted
}

type place uint8

const (
	read place = 1 + iota // in the own index, and judged by another process
	away                  // in the peers' index
)

// Of returns the view of an own snapshot and one of the peers' index, nil for none. projections may be nil where
// all is known.
func Of(own, peers *aggregate.Snapshot, projections Projections) *View {
	v := &View{own: own, peers: peers, projections: projections}
	if peers != nil {
		v.places = placesOf(own, peers)
	}
	return v
}

// Join returns the view of an own snapshot and one of an index that has other members whole, or those that it has of them
// better: all members of that are taken from there. nil for none.
func Join(own, others *aggregate.Snapshot) *View {
	v := &View{own: own, peers: others}
	if others != nil {
		v.places = &places{of: map[string]place{}}
		for m := range others.Members() {
			v.of[m.Name] = away
			v.away = append(v.away, m.Name)
		}
	}
	return v
}

// Next is Of for later snapshots of the same indexes.
func (v *View) Next(own, peers *aggregate.Snapshot) *View {
	if (peers == nil) == (v.peers == nil) && (peers == nil || own.Shape() == v.own.Shape() && peers.Shape() == v.peers.Shape()) {
		return &View{own: own, peers: peers, places: v.places, projections: v.projections}
	}
	return Of(own, peers, v.projections)
}

// With returns the view for other policies.
func (v *View) With(projections Projections) *View {
	return &View{own: v.own, peers: v.peers, places: v.places, projections: projections}
}

func placesOf(own, peers *aggregate.Snapshot) *places {
	p := &places{of: map[string]place{}}
	for m := range own.Members() {
		if m.Role != aggregate.Judge {
			p.of[m.Name] = read
		}
	}
	for m := range peers.Members() {
		if held, ok := own.Member(m.Name); !ok || held.Role.KnowsLess() {
			p.of[m.Name] = away
			p.away = append(p.away, m.Name)
		}
	}
	return p
}

// Own returns the snapshot of what this process reads itself.
func (v *View) Own() *aggregate.Snapshot { return v.own }

// Peers returns the snapshot of what peers have told; nil without peers.
func (v *View) Peers() *aggregate.Snapshot { return v.peers }

// Revision returns that of the own snapshot.
func (v *View) Revision() aggregate.Revision { return v.own.Revision() }

// Judges reports whether this process judges a member of the fleet.
func (v *View) Judges(member string) bool { return v.peers == nil || v.of[member] == 0 }

// Away reports whether what is known of a member is what a peer has told.
func (v *View) Away(member string) bool { return v.peers != nil && v.of[member] == away }

// AwayMembers returns the members that are away, by name. It must not be changed.
func (v *View) AwayMembers() []string {
	if v.peers == nil {
		return nil
	}
	return v.away
}

// Matters reports whether policies evaluate, or read, objects of a kind in a member.
func (v *View) Matters(member string, kind aggregate.Kind) bool {
	return v.Judges(member) || v.projections == nil || v.projections.Reads(kind)
}

// Known reports whether a scope has what policies read of its objects. One of a peer with other policies has not, unless there
// are none: a kind that the member does not serve has no scope there, and so no projection.
func (v *View) Known(s aggregate.ScopeInfo) bool {
	return !v.Away(s.Member) || v.projections == nil || s.Status.State == aggregate.NotServed && s.Objects == 0 || v.projections.Knows(s.Kind, s.Version)
}

// ProjectedAs returns the version of a scope whose objects are projections, and which are of an API version.
func ProjectedAs(projection, apiVersion string) string {
	if projection == "" {
		return ""
	}
	return projection + " " + apiVersion
}

// Projection returns what names the projection in the version of a peers' scope.
func Projection(version string) string {
	projection, _, _ := strings.Cut(version, " ")
	return projection
}

// APIVersion returns the API version of an object, as its member has it.
func (v *View) APIVersion(o aggregate.Object) string {
	version := o.APIVersion()
	if v.Away(o.Member()) {
		_, version, _ = strings.Cut(version, " ")
	}
	return version
}

// Member returns what is known of a member.
func (v *View) Member(name string) (aggregate.Member, bool) {
	return v.holder(name).Member(name)
}

// holder returns the snapshot that has a member.
func (v *View) holder(member string) *aggregate.Snapshot {
	if v.Away(member) {
		return v.peers
	}
	return v.own
}

// Members yields all members by name.
func (v *View) Members() iter.Seq[aggregate.Member] {
	if v.peers == nil {
		return v.own.Members()
	}
	return func(yield func(aggregate.Member) bool) {
		merge(v, v.own.Members(), v.awayMembers, func(m aggregate.Member) string { return m.Name }, yield)
	}
}

func (v *View) awayMembers(names []string) iter.Seq[aggregate.Member] {
	return func(yield func(aggregate.Member) bool) {
		for _, name := range names {
			if m, ok := v.peers.Member(name); ok && !yield(m) {
				return
			}
		}
	}
}

// merge yields what is of members in the own index, in their order, and in between what others yields of those that
// are away.
func merge[T any](v *View, own iter.Seq[T], others func(names []string) iter.Seq[T], member func(T) string, yield func(T) bool) {
	rest := v.away
	before := func(n int) bool {
		if n == 0 {
			return true
		}
		for x := range others(rest[:n]) {
			if !yield(x) {
				return false
			}
		}
		rest = rest[n:]
		return true
	}
	at := ""
	for x := range own {
		name := member(x)
		if v.of[name] == away { // which knows less
			continue
		}
		if name != at && len(rest) > 0 && rest[0] < name {
			n, _ := slices.BinarySearch(rest, name)
			if !before(n) {
				return
			}
		}
		at = name
		if !yield(x) {
			return
		}
	}
	before(len(rest))
}

// Scope returns one scope, as [aggregate.Snapshot.Scope] does.
func (v *View) Scope(member string, kind aggregate.Kind) (aggregate.ScopeInfo, bool) {
	return v.holder(member).Scope(member, kind)
}

// Scopes yields the scopes of one member by kind.
func (v *View) Scopes(member string) iter.Seq[aggregate.ScopeInfo] {
	return v.holder(member).Scopes(member)
}

// ScopesOf yields the scopes of a kind by member.
func (v *View) ScopesOf(kind aggregate.Kind) iter.Seq[aggregate.ScopeInfo] {
	if v.peers == nil {
		return v.own.ScopesOf(kind)
	}
	others := func(names []string) iter.Seq[aggregate.ScopeInfo] {
		return func(yield func(aggregate.ScopeInfo) bool) {
			for _, name := range names {
				if s, ok := v.peers.Scope(name, kind); ok && !yield(s) {
					return
				}
			}
		}
	}
	return func(yield func(aggregate.ScopeInfo) bool) {
		merge(v, v.own.ScopesOf(kind), others, func(s aggregate.ScopeInfo) string { return s.Member }, yield)
	}
}

// Kinds yields the kinds that have a scope in any member, in order.
func (v *View) Kinds() iter.Seq[aggregate.Kind] {
	if v.peers == nil {
		return v.own.Kinds()
	}
	kinds := map[aggregate.Kind]bool{}
	for _, s := range []*aggregate.Snapshot{v.own, v.peers} {
		for kind := range s.Kinds() {
			kinds[kind] = true
		}
	}
	return slices.Values(slices.DeleteFunc(slices.Sorted(maps.Keys(kinds)), func(kind aggregate.Kind) bool {
		for range v.ScopesOf(kind) {
			return false
		}
		return true // of members that the other index has
	}))
}

// Get returns one object.
func (v *View) Get(ref aggregate.Ref) (aggregate.Object, bool) {
	return v.holder(ref.Member).Get(ref)
}

// Named yields the objects of one namespace and name in all members, by member.
func (v *View) Named(kind aggregate.Kind, namespace, name string) iter.Seq[aggregate.Object] {
	if v.peers == nil {
		return v.own.Named(kind, namespace, name)
	}
	others := slices.DeleteFunc(slices.Collect(v.peers.Named(kind, namespace, name)), func(o aggregate.Object) bool { return v.of[o.Member()] != away })
	return func(yield func(aggregate.Object) bool) {
		rest := others
		for o := range v.own.Named(kind, namespace, name) {
			if v.of[o.Member()] == away {
				continue
			}
			for len(rest) > 0 && rest[0].Member() < o.Member() {
				if !yield(rest[0]) {
					return
				}
				rest = rest[1:]
			}
			if !yield(o) {
				return
			}
		}
		for _, o := range rest {
			if !yield(o) {
				return
			}
		}
	}
}

// List yields the objects that a query selects, by member, namespace and name.
func (v *View) List(q aggregate.Query) (iter.Seq[aggregate.Object], error) {
	own, err := v.own.List(q)
	if v.peers == nil || err != nil {
		return own, err
	}
	if len(v.away) > 0 {
		if _, err := v.peers.List(q); err != nil {
			return nil, err
		}
	}
	others := func(names []string) iter.Seq[aggregate.Object] {
		of := q
		if of.Members = names; q.Members != nil {
			of.Members = both(names, q.Members)
		}
		list, err := v.peers.List(of)
		if err != nil {
			panic("fleetview: a query that was accepted fails: " + err.Error())
		}
		return list
	}
	return func(yield func(aggregate.Object) bool) {
		merge(v, own, others, aggregate.Object.Member, yield)
	}, nil
}

// both returns what two sorted lists have in common; not nil.
func both(a, b []string) []string {
	if len(b) < len(a) {
		a, b = b, a
	}
	out := make([]string, 0, len(a))
	for _, s := range a {
		if _, ok := slices.BinarySearch(b, s); ok {
			out = append(out, s)
		}
	}
	return out
}

// Objects yields the objects of a kind; member "" means all.
func (v *View) Objects(kind aggregate.Kind, member string) iter.Seq[aggregate.Object] {
	if member != "" {
		return objectsOf(v.holder(member), kind, member)
	}
	list, err := v.List(aggregate.Query{Kind: kind})
	if err != nil {
		panic("fleetview: a query without fields fails: " + err.Error())
	}
	return list
}

// Judged yields the objects of a kind that are judged here; member "" means all.
func (v *View) Judged(kind aggregate.Kind, member string) iter.Seq[aggregate.Object] {
	switch {
	case member != "" && !v.Judges(member):
		return func(func(aggregate.Object) bool) {}
	case v.peers == nil || member != "":
		return objectsOf(v.own, kind, member)
	}
	return func(yield func(aggregate.Object) bool) {
		for o := range objectsOf(v.own, kind, "") {
			if v.of[o.Member()] == 0 && !yield(o) {
				return
			}
		}
	}
}

func objectsOf(s *aggregate.Snapshot, kind aggregate.Kind, member string) iter.Seq[aggregate.Object] {
	q := aggregate.Query{Kind: kind}
	if member != "" {
		q.Members = []string{member}
	}
	list, err := s.List(q)
	if err != nil {
		panic("fleetview: a query without fields fails: " + err.Error())
	}
	return list
}
