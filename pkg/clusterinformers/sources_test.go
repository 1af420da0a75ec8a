package clusterinformers_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// TestManager_FirstSourceHasTheMember: what two sources describe is one member, as the first of them says, until that
// says so no more; it is logged once.
func TestManager_FirstSourceHasTheMember(t *testing.T) {
	second := newFixed()
	var spec clusterinformers.Spec
	object := func(kind string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: kind, Namespace: "fleet", Name: "a"}
	}
	r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.Sources = append(o.Sources, second)
		spec = r.source.view[0]
		r.source.view[0].Object = object("Cluster")
		other := spec
		other.UID, other.Object = "uid-of-another", object("ClusterProfile")
		second.view = []clusterinformers.Spec{other}
	}).start()
	m := r.fleet.Members()[0]
	r.synced(m)
	describes := func(kind string) func() bool {
		return func() bool { o := r.manager.Describes(spec.Name); return o != nil && o.Kind == kind }
	}
	if !describes("Cluster")() || len(r.manager.Members()) != 1 {
		t.Errorf("described by %v, %d members", r.manager.Describes(spec.Name), len(r.manager.Members()))
	}
	second.set(second.view...)
	r.source.set(r.source.view...)
	if n := r.log.count("two sources describe the member: the first one counts"); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
	r.source.set()
	r.until("the second source has it", describes("ClusterProfile"))
	if uid := r.status(m).UID; uid != "uid-of-another" {
		t.Errorf("its UID is %q", uid)
	}
	second.set()
	r.until("nothing describes it", func() bool { return len(r.manager.Members()) == 0 && r.manager.Describes(spec.Name) == nil })
}

// TestManager_SilentSourceKeepsNobodyElsesMembers: a source that has not spoken is no reason to go on reading, and writing
// to, a member whose own source says that it has gone; one that knows a part only keeps its own.
func TestManager_SilentSourceKeepsNobodyElsesMembers(t *testing.T) {
	silent := newFixed()
	r := follow(t, fewKinds(), func(_ *rig, o *clusterinformers.Options) { o.Sources = append(o.Sources, silent) })
	if ready, waiting := r.manager.Ready(); ready || !slices.Equal(waiting, []string{"member sources"}) || r.manager.Known() {
		t.Errorf("ready %t, waiting for %v, though a source has not spoken", ready, waiting)
	}
	silent.setView(clusterinformers.View{Partial: true})
	r.until("it is ready with what can be known", func() bool { ready, _ := r.manager.Ready(); return ready && r.manager.Known() })
	r.source.setView(clusterinformers.View{Partial: true})
	silent.setView(clusterinformers.View{})
	r.during(200*time.Millisecond, "a source that knows a part only keeps its members", func() bool { return len(r.joined()) == len(r.fleet.Members()) })
	r.source.set()
	r.until("its members have left", func() bool { return len(r.joined()) == 0 })
}

// TestManager_LaterSourceWaitsForAName: where two sources describe a member the first has it, and at a start, too: until it has
// spoken the other's is not connected to.
func TestManager_LaterSourceWaitsForAName(t *testing.T) {
	first := newFixed()
	r := newRig(t, fewKinds(), func(_ *rig, o *clusterinformers.Options) {
		o.Sources = append([]clusterinformers.Source{first}, o.Sources...)
	})
	m := r.fleet.Members()[0]
	squatter, local := specOf(t, m), specOf(t, m)
	squatter.UID, squatter.Object = "uid-of-squatter", &corev1.ObjectReference{Kind: "Secret", Name: "squatter"}
	local.Name, local.UID = "context/laptop", "uid-of-laptop"
	r.source.view = []clusterinformers.Spec{squatter, local}
	r.start()
	r.until("what nobody else can describe is read", func() bool {
		all := r.manager.Members()
		return len(all) > 0 && all[0].Name == "context/laptop" && all[0].State == connection.Connected
	})
	if n := len(r.manager.Members()); n != 1 {
		t.Errorf("%d members", n)
	}
	own := specOf(t, m)
	own.Object = &corev1.ObjectReference{Kind: "Cluster", Name: "own"}
	first.set(own)
	r.until("the first source's member", func() bool { return r.status(m).UID == own.UID })
}

// TestManager_LaterSourceDropsNothingThatWasKept: after a restart the source that has a name speaks last. What was kept of its member
// must be gone on with, and not be dropped for another source's member of the name, for a moment.
func TestManager_LaterSourceDropsNothingThatWasKept(t *testing.T) {
	for _, order := range []string{"first speaks first", "second speaks first"} {
		t.Run(order, func(t *testing.T) {
			l := newLives(t, fewKinds(), populate)
			m := l.fleet.Members()[0]
			l.exact(m, fewKinds().Kinds)
			own := specOf(t, m)
			squatter := clusterinformers.Spec{Name: own.Name, UID: "uid-of-squatter", Object: &corev1.ObjectReference{Kind: "Secret", Name: "squatter"}, Refused: connection.Refuse(connection.NoKubeconfig, "none")}
			first, second := newFixed(), newFixed()
			if order == "first speaks first" {
				first.view = []clusterinformers.Spec{own}
			} else {
				second.view = []clusterinformers.Spec{squatter}
			}
			l.restart(nil, func(o *clusterinformers.Options) { o.Sources = []clusterinformers.Source{first, second} })
			if order == "first speaks first" {
				l.until("the first source has spoken", func() bool { return len(l.manager.Members()) > 0 })
				second.set(squatter)
			}
			first.set(own)
			l.until("the first source's member", func() bool {
				s, ok := l.index.Snapshot().Member(nameOf(m))
				return ok && s.UID == own.UID
			})
			l.synced(m)
			if n := l.allLists(m); n > 0 {
				t.Errorf("all of the member was listed again (%d lists) although it was kept", n)
			}
			l.stop()
		})
	}
}

// TestManager_KnownWhileAMemberIsNotInitialized: a cluster that has not joined yet is no reason to say that the fleet is not
// known.
func TestManager_KnownWhileAMemberIsNotInitialized(t *testing.T) {
	r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
		r.source.view = append(r.source.view, clusterinformers.Spec{Name: "managedcluster/pending", UID: "p", Uninitialized: true, Refused: connection.Refuse(connection.NotInitialized, "the ManagedCluster has not joined")})
	}).start()
	r.until("the members are known", r.manager.Known)
}

// views is a source whose views the test sends.
type views struct{ ch chan clusterinformers.View }

func (v views) Run(ctx context.Context, set func(clusterinformers.View)) error {
	for {
		select {
		case view := <-v.ch:
			set(view)
		case <-ctx.Done():
			return nil
		}
	}
}

// TestManager_WhatHasLeftLeavesAPart: a member that a source says has left leaves, also one that an earlier process has read, although the
// source knows a part of its members only; what it does not name otherwise stays.
func TestManager_WhatHasLeftLeavesAPart(t *testing.T) {
	fleet := fewKinds()
	fleet.Members = 2
	l := newLives(t, fleet, populate)
	a, b := l.fleet.Members()[0], l.fleet.Members()[1]
	l.exact(a, fewKinds().Kinds)
	l.exact(b, fewKinds().Kinds)
	source := views{make(chan clusterinformers.View, 1)}
	source.ch <- clusterinformers.View{Partial: true}
	l.restart(nil, func(o *clusterinformers.Options) { o.Sources = []clusterinformers.Source{source} })
	l.until("the source has spoken", l.manager.Known)
	has := func(want ...string) func() bool {
		return func() bool {
			var got []string
			for m := range l.index.Snapshot().Members() {
				got = append(got, m.Name)
			}
			return slices.Equal(got, want)
		}
	}
	l.during(100*time.Millisecond, "what was read before stays", has(nameOf(a), nameOf(b)))
	source.ch <- clusterinformers.View{Partial: true, Left: []string{nameOf(a)}}
	l.until("what was read before of one that has left is gone", has(nameOf(b)))
	source.ch <- clusterinformers.View{Partial: true, Members: []clusterinformers.Spec{specOf(t, a), specOf(t, b)}}
	l.synced(a)
	l.synced(b)
	source.ch <- clusterinformers.View{Partial: true, Left: []string{nameOf(b)}}
	l.until("one that has left is gone, and the other is not", has(nameOf(a)))
	l.stop()
}
