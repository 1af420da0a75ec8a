package clusterinformers_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/sim"
)

// TestAttack_SilentSourceKeepsDeletedMembers: a source that cannot speak (its CRD is not installed) is no reason to go on
// reading, and writing to, a member whose own source says that it was deleted.
func TestAttack_SilentSourceKeepsDeletedMembers(t *testing.T) {
	silent := newFixed()
	r := follow(t, fewKinds(), func(_ *rig, o *clusterinformers.Options) { o.Sources = append(o.Sources, silent) })
	m := r.fleet.Members()[0]
	r.source.set() // every Member was deleted
	deadline := time.Now().Add(3 * time.Second)
	for len(r.joined()) > 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if names := r.joined(); len(names) > 0 {
		a, _, _, err := r.manager.Writer(nameOf(m), "Pod", "v1")
		t.Errorf("3s after their source has dropped them, members %q are in the index, and a client for writes is given out: %v, %v", names, a != nil, err)
	}
}

// TestAttack_SilentSourceBlocksReadiness: one of two sources never speaks; all members of the other are synced.
func TestAttack_SilentSourceBlocksReadiness(t *testing.T) {
	silent := newFixed()
	r := follow(t, fewKinds(), func(_ *rig, o *clusterinformers.Options) { o.Sources = append(o.Sources, silent) })
	time.Sleep(time.Second)
	if ready, waiting := r.manager.Ready(); !ready {
		t.Errorf("every member that can be known has synced, and the replica is never ready: %q; known: %t", waiting, r.manager.Known())
	}
}

// TestAttack_LaterSourceSpeaksFirst: where two sources describe a member the first has it, and at a start, too: until it has
// spoken the other's is not connected to.
func TestAttack_LaterSourceSpeaksFirst(t *testing.T) {
	first := newFixed()
	r := newRig(t, fewKinds(), func(_ *rig, o *clusterinformers.Options) {
		o.Sources = append([]clusterinformers.Source{first}, o.Sources...)
	})
	m := r.fleet.Members()[0]
	squatter := specOf(t, m)
	squatter.UID, squatter.Object = "uid-of-squatter", &corev1.ObjectReference{Kind: "Secret", Name: "squatter"}
	r.source.view = []clusterinformers.Spec{squatter}
	r.start()
	deadline := time.Now().Add(3 * time.Second)
	connected := false
	for !connected && time.Now().Before(deadline) {
		for _, s := range r.manager.Members() {
			connected = connected || s.State == connection.Connected
		}
		time.Sleep(20 * time.Millisecond)
	}
	own := specOf(t, m)
	own.Object = &corev1.ObjectReference{Kind: "Cluster", Name: "own"}
	first.set(own)
	if connected {
		t.Error("the member of the second source was connected to before the first source had said whose the name is")
	}
}

// TestAttack_LaterSourceDropsWhatWasKept: after a restart the source that has a name speaks last. What was kept of its member
// must be gone on with, and not be dropped for another source's member of the name, for a moment.
func TestAttack_LaterSourceDropsWhatWasKept(t *testing.T) {
	for _, order := range []string{"first speaks first", "second speaks first"} {
		t.Run(order, func(t *testing.T) {
			l := newLives(t, fewKinds(), populate)
			m := l.fleet.Members()[0]
			l.exact(m, fewKinds().Kinds)
			own := specOf(t, m)
			squatter := clusterinformers.Spec{Name: own.Name, UID: "uid-of-squatter", Refused: connection.Refuse(connection.NoKubeconfig, "none")}
			first, second := newFixed(), newFixed()
			if order == "first speaks first" {
				first.view = []clusterinformers.Spec{own}
			} else {
				second.view = []clusterinformers.Spec{squatter}
			}
			l.restart(nil, func(o *clusterinformers.Options) { o.Sources = []clusterinformers.Source{first, second} })
			l.until("a source has spoken", func() bool { return len(l.manager.Members()) > 0 })
			first.set(own)
			second.set(squatter)
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

// TestAttack_UninitializedMemberIsNeverKnown: a ManagedCluster that has not joined yet is no reason to say forever that the
// fleet is not known.
func TestAttack_UninitializedMemberIsNeverKnown(t *testing.T) {
	r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
		r.source.view = append(r.source.view, clusterinformers.Spec{Name: "managedcluster/pending", UID: "p", Uninitialized: true, Refused: connection.Refuse(connection.NotInitialized, "the ManagedCluster has not joined")})
	}).start()
	for _, m := range r.fleet.Members() {
		r.synced(m)
	}
	deadline := time.Now().Add(3 * time.Second)
	for !r.manager.Known() && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if !r.manager.Known() {
		t.Error("all members that belong to the fleet have synced, and the members are not known")
	}
}

// TestAttack_RefusedStrangersCountAsAway: objects that never made a member count for the bound that holds all writes back.
func TestAttack_RefusedStrangersCountAsAway(t *testing.T) {
	r := follow(t, sim.Options{Members: 1}, func(r *rig, _ *clusterinformers.Options) {
		for _, name := range []string{"a", "b", "c"} {
			r.source.view = append(r.source.view, clusterinformers.Spec{Name: "argocd/" + name, UID: name, Refused: connection.Refuse(connection.ExecPlugin, "config of the Secret has execProviderConfig, which runs a command")})
		}
	})
	if away, members := r.manager.Away(); away > 0 {
		t.Errorf("%d of %d members are away: clusters that federator refuses for good", away, members)
	}
}
