package state

import (
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/projection"
)

// Keys calls yield with the name of each object of a scope, and what its record is wanted for: its name, where policies
// read the fields of objects of its kind, and the keys that it contributes to. Nothing is read of objects. The keys are
// overwritten by the next object's. An error of yield ends it and is returned.
func (x *Export) Keys(member string, kind aggregate.Kind, yield func(namespace, name string, k *interest.Keys) error) error {
	if !x.has(member) || !x.s.parts.Projections.Reads(kind) {
		return nil
	}
	of := x.keysOf(kind)
	var k interest.Keys
	for o := range x.s.Snapshot.Objects(member, kind) {
		of.fill(aggregate.Ref{Member: member, Kind: kind, Namespace: o.Namespace(), Name: o.Name()}, &k)
		if err := yield(o.Namespace(), o.Name(), &k); err != nil {
			return err
		}
	}
	return nil
}

// KeysOf fills in what the record of an object is wanted for: nothing where there is none.
func (x *Export) KeysOf(ref aggregate.Ref, k *interest.Keys) {
	k.Reset()
	if !x.has(ref.Member) {
		return
	}
	if _, there := x.s.Snapshot.Get(ref); there {
		of := x.keysOf(ref.Kind)
		of.fill(ref, k)
	}
}

// keysOf finds keys of the objects of a kind.
type keysOf struct {
	named bool
	names interest.Space
	views []*matview.View
	of    []interest.Space // of the views
}

func (x *Export) keysOf(kind aggregate.Kind) keysOf {
	plan := x.s.parts.Projections.Of(kind)
	out := keysOf{named: plan.Mask != nil, names: plan.Names}
	for i := range plan.Views {
		if v := x.s.parts.ByID[plan.Views[i].ID]; v != nil {
			out.views, out.of = append(out.views, v), append(out.of, plan.Spaces[i])
		}
	}
	return out
}

func (o *keysOf) fill(ref aggregate.Ref, k *interest.Keys) {
	k.Reset()
	if o.named {
		k.Add(o.names, interest.NameBucket(ref.Namespace, ref.Name))
	}
	for i, v := range o.views {
		keys, unknown := v.KeysFor(ref)
		k.Always = k.Always || unknown != ""
		for _, key := range keys {
			k.Add(o.of[i], interest.Bucket(key))
		}
	}
}

// Find calls yield with each object that has a key of a set, and maybe more often than once. It costs a look at each key
// of the set's views, and at each name of its kinds, before which it calls look. Nothing is read of objects. An error of either ends
// it and is returned.
func (x *Export) Find(set *interest.Set, look func() error, yield func(aggregate.Ref) error) error {
	for space := range set.Spaces() {
		var err error
		if kind, ok := space.Kind(); ok {
			err = x.findNames(set, space, kind, look, yield)
		} else if identity, ok := space.ViewOf(); ok {
			err = x.findContributions(set, space, identity, look, yield)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *Export) findNames(set *interest.Set, space interest.Space, kind aggregate.Kind, look func() error, yield func(aggregate.Ref) error) error {
	if x.s.parts.Projections.Of(kind).Mask == nil {
		return nil
	}
	has := set.Of(space)
	for info := range x.s.Snapshot.ScopesOf(kind) {
		if !x.has(info.Member) {
			continue
		}
		for o := range x.s.Snapshot.Objects(info.Member, kind) {
			if err := look(); err != nil {
				return err
			}
			if !has(interest.NameBucket(o.Namespace(), o.Name())) {
				continue
			}
			if err := yield(aggregate.Ref{Member: info.Member, Kind: kind, Namespace: o.Namespace(), Name: o.Name()}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *Export) findContributions(set *interest.Set, space interest.Space, identity string, look func() error, yield func(aggregate.Ref) error) error {
	v := x.view(x.s.parts.Projections.Find(identity))
	if v == nil {
		return nil
	}
	has := set.Of(space)
	member, judged := "", false
	for key := range v.Keys() {
		if err := look(); err != nil {
			return err
		}
		if !has(interest.Bucket(key)) {
			continue
		}
		for e := range v.Entries(key) {
			if ref := &e.Object.Ref; ref.Member != member {
				member, judged = ref.Member, x.has(ref.Member)
			}
			if !judged {
				continue
			}
			if err := yield(e.Object.Ref); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *Export) view(v *projection.View) *matview.View {
	if v == nil {
		return nil
	}
	return x.s.parts.ByID[v.ID]
}
