package fleetview

import (
	"iter"
	"slices"

	"federator.dev/federator/pkg/aggregate"
)

// Change is what differs between two views.
type Change struct {
	Before, After *View
	own, peers    *aggregate.Batch
	moved         map[string]bool // members that are taken from the other index than before
}

// Between returns the change of a view by a batch of each index, nil for none.
func Between(before *View, own, peers *aggregate.Batch) *Change {
	ownAfter, peersAfter := before.own, before.peers
	if own != nil {
		ownAfter = own.After
	}
	if peers != nil {
		peersAfter = peers.After
	}
	c := &Change{Before: before, After: before.Next(ownAfter, peersAfter), own: own, peers: peers}
	if c.After.places == before.places {
		return c
	}
	for _, b := range []*aggregate.Batch{own, peers} {
		if b == nil {
			continue
		}
		for d := range b.Members() {
			name := nameOf(&d)
			_, was := before.Member(name)
			_, is := c.After.Member(name)
			if was && is && before.Away(name) != c.After.Away(name) {
				if c.moved == nil {
					c.moved = map[string]bool{}
				}
				c.moved[name] = true
			}
		}
	}
	return c
}

func nameOf(d *aggregate.MemberDelta) string {
	if d.After != nil {
		return d.After.Name
	}
	return d.Before.Name
}

// Own returns the batch of the own index; nil for none.
func (c *Change) Own() *aggregate.Batch { return c.own }

// of reports whether a member's changes are those of the own index, or of the peers'.
func (c *Change) of(member string, own bool) bool {
	if c.moved[member] {
		return false
	}
	at := c.After
	if _, is := at.Member(member); !is {
		at = c.Before
	}
	return at.Away(member) != own
}

// each yields the changes of both batches that are in effect.
func each[T any](c *Change, changes func(*aggregate.Batch) iter.Seq[T], member func(*T) string, yield func(T) bool) bool {
	for _, b := range []*aggregate.Batch{c.own, c.peers} {
		if b == nil {
			continue
		}
		last, of := "", false // most are of one member
		for d := range changes(b) {
			if name := member(&d); name != last {
				last, of = name, c.of(name, b == c.own)
			}
			if of && !yield(d) {
				return false
			}
		}
	}
	return true
}

// movedMembers are those that moved, in order.
func (c *Change) movedMembers() []string {
	names := make([]string, 0, len(c.moved))
	for name := range c.moved {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Members yields the members that joined, left or changed. One that left and joined again, with another UID, is
// yielded twice.
func (c *Change) Members() iter.Seq[aggregate.MemberDelta] {
	if c.peers == nil && c.Before.peers == nil {
		return c.own.Members()
	}
	return func(yield func(aggregate.MemberDelta) bool) {
		if !each(c, (*aggregate.Batch).Members, nameOf, yield) {
			return
		}
		for _, name := range c.movedMembers() {
			was, _ := c.Before.Member(name)
			is, _ := c.After.Member(name)
			if was.UID == is.UID {
				if !yield(aggregate.MemberDelta{Before: &was, After: &is}) {
					return
				}
			} else if !yield(aggregate.MemberDelta{Before: &was}) || !yield(aggregate.MemberDelta{After: &is}) {
				return
			}
		}
	}
}

// Scopes yields the scopes whose status, version or resource changed, and all of members that moved.
func (c *Change) Scopes() iter.Seq[aggregate.ScopeDelta] {
	if c.peers == nil && c.Before.peers == nil {
		return c.own.Scopes()
	}
	return func(yield func(aggregate.ScopeDelta) bool) {
		if !each(c, (*aggregate.Batch).Scopes, func(d *aggregate.ScopeDelta) string { return d.After.Member }, yield) {
			return
		}
		for _, name := range c.movedMembers() {
			for _, kind := range c.kindsOf(name) {
				was, _ := c.Before.Scope(name, kind)
				is, _ := c.After.Scope(name, kind)
				if !yield(aggregate.ScopeDelta{Before: was, After: is}) {
					return
				}
			}
		}
	}
}

// kindsOf are the kinds of which a member has, or had, a scope.
func (c *Change) kindsOf(member string) []aggregate.Kind {
	kinds := slices.Concat(c.Before.holder(member).KindsOf(member), c.After.holder(member).KindsOf(member))
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Deltas yields the objects that changed, and all of members that moved.
func (c *Change) Deltas() iter.Seq[aggregate.Delta] {
	if c.peers == nil && c.Before.peers == nil {
		return c.own.Deltas()
	}
	return func(yield func(aggregate.Delta) bool) {
		if !each(c, (*aggregate.Batch).Deltas, func(d *aggregate.Delta) string { return d.Ref.Member }, yield) {
			return
		}
		for _, name := range c.movedMembers() {
			for _, kind := range c.kindsOf(name) {
				if !c.movedObjects(name, kind, yield) {
					return
				}
			}
		}
	}
}

// movedObjects yields all objects of a scope that is taken from another index.
func (c *Change) movedObjects(member string, kind aggregate.Kind, yield func(aggregate.Delta) bool) bool {
	for o := range c.After.Objects(kind, member) {
		d := aggregate.Delta{Ref: o.Ref(), After: o}
		if d.Before, _ = c.Before.Get(d.Ref); !d.Before.IsZero() && d.Before.UID() != o.UID() {
			if !yield(aggregate.Delta{Ref: d.Ref, Before: d.Before}) {
				return false
			}
			d.Before = aggregate.Object{}
		}
		if !yield(d) {
			return false
		}
	}
	for o := range c.Before.Objects(kind, member) {
		if _, is := c.After.Get(o.Ref()); !is && !yield(aggregate.Delta{Ref: o.Ref(), Before: o}) {
			return false
		}
	}
	return true
}
