package clusterinformers_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// A kind that is held because a policy needs it: policies of the hub are known a while after the start
// (internal/enforcement calls RequireKinds once it has read them), and members are reconciled before.
// What was loaded is published as deleted. Once the policies are known, the kind's informer goes on from
// the stored resourceVersion in a scope that is empty by now: it is Synced, and has nothing, for good.
func TestAttack_RequiredKindIsSyncedAndEmpty(t *testing.T) {
	l := newLives(t, fewKinds(), populate)
	m := l.fleet.Members()[0]
	want := len(l.held(m, "Pod"))
	l.restart(nil, func(o *clusterinformers.Options) { // the same narrow rules before and after, in effect
		o.Kinds = []clusterinformers.KindRule{{Kind: "Namespace"}, {Kind: "Node"}}
	})
	from := l.index.Snapshot().Revision()
	if got := len(l.held(m, "Pod")); got != want || want == 0 {
		t.Fatalf("%d Pods were loaded, want %d", got, want)
	}
	time.Sleep(2 * time.Second) // until the hub's policies are read
	before := len(l.held(m, "Pod"))
	l.manager.RequireKinds([]aggregate.Kind{"Pod"})
	l.until("Pods are synced", func() bool { return l.state(m, "Pod") == aggregate.Synced })
	time.Sleep(3 * time.Second)
	deleted := 0
	changes, err := l.index.ChangesOf("Pod", from)
	if err != nil {
		t.Fatal(err)
	}
	for c := range changes {
		if c.After.IsZero() {
			deleted++
		}
	}
	if before != want || deleted > 0 {
		t.Errorf("before the policies were known there were %d Pods of %d: readers were sent %d deletions", before, want, deleted)
	}
	if got := len(l.held(m, "Pod")); got != want {
		t.Errorf("the member has %d Pods; the scope is %s and has %d, after %d lists", want, l.state(m, "Pod"), got, l.lists(m, kindsOf("Pod")[0].GroupResource()))
	}
}

// A kind that the member does not serve when it is discovered first (a CRD that is installed anew, an
// API server that starts before its aggregated ones), and does later: the same.
func TestAttack_KindThatIsAwayAtTheStartIsSyncedAndEmpty(t *testing.T) {
	var hidden atomic.Bool
	fleet := fewKinds()
	fleet.Members = 2
	l := newLives(t, fleet, func(r *rig) {
		populate(r)
		a, b := r.fleet.Members()[0], r.fleet.Members()[1]
		b.RemoveKind(pods)
		other := newFakeServer(t, b, func(http.ResponseWriter, *http.Request) bool { return false })
		r.source.view[0] = newFakeServer(t, a, func(w http.ResponseWriter, req *http.Request) bool {
			if !hidden.Load() || req.URL.Path != "/api" && req.URL.Path != "/api/v1" {
				return false
			}
			other.forward(w, req) // the same but for Pods
			return true
		}).spec
	})
	a := l.fleet.Members()[0]
	want := len(l.held(a, "Pod"))
	hidden.Store(true)
	l.restart(nil, func(o *clusterinformers.Options) { o.DiscoveryInterval = 300 * time.Millisecond })
	l.until("Pods are not served", func() bool { return l.state(a, "Pod") != aggregate.Stale })
	t.Log(l.state(a, "Pod"), len(l.held(a, "Pod")), want)
	hidden.Store(false)
	l.until("Pods are synced", func() bool { return l.state(a, "Pod") == aggregate.Synced })
	time.Sleep(2 * time.Second)
	if got := len(l.held(a, "Pod")); got != want || want == 0 {
		t.Errorf("the member has %d Pods; the scope is %s and has %d, after %d lists", want, l.state(a, "Pod"), got, l.lists(a, kindsOf("Pod")[0].GroupResource()))
	}
}

// A kind that is not served any more is emptied by a writer that does not say how far the scope reaches now:
// the stored resourceVersion stays with no objects. Where the kind is served again after a restart, it is
// continued from there.
func TestAttack_KindThatWasAwayAtTheEndIsSyncedAndEmpty(t *testing.T) {
	var hidden atomic.Bool
	fleet := fewKinds()
	fleet.Members = 2
	l := newLives(t, fleet, func(r *rig) {
		populate(r)
		a, b := r.fleet.Members()[0], r.fleet.Members()[1]
		b.RemoveKind(pods)
		other := newFakeServer(t, b, func(http.ResponseWriter, *http.Request) bool { return false })
		r.source.view[0] = newFakeServer(t, a, func(w http.ResponseWriter, req *http.Request) bool {
			if !hidden.Load() || req.URL.Path != "/api" && req.URL.Path != "/api/v1" {
				return false
			}
			other.forward(w, req)
			return true
		}).spec
	})
	a := l.fleet.Members()[0]
	quick := func(o *clusterinformers.Options) {
		o.DiscoveryInterval = 300 * time.Millisecond
		o.Kinds = []clusterinformers.KindRule{{Kind: "Pod"}, {Kind: "*"}} // Pods have a scope in each member
	}
	l.restart(nil, quick)
	l.synced(a)
	want := len(l.held(a, "Pod"))
	l.until("Pods are synced", func() bool { return l.state(a, "Pod") == aggregate.Synced })
	t.Log("reached", l.index.Newest().Reached(nameOf(a), "Pod"))
	hidden.Store(true)
	l.until("Pods are not served", func() bool { return l.state(a, "Pod") == aggregate.NotServed })
	t.Log("reaches", l.index.Newest().Reached(nameOf(a), "Pod"), "with", len(l.held(a, "Pod")))
	l.restart(func() { hidden.Store(false) }, quick)
	l.until("Pods are synced", func() bool { return l.state(a, "Pod") == aggregate.Synced })
	time.Sleep(2 * time.Second)
	if got := len(l.held(a, "Pod")); got != want || want == 0 {
		t.Errorf("the member has %d Pods; the scope is %s and has %d, after %d lists", want, l.state(a, "Pod"), got, l.lists(a, kindsOf("Pod")[0].GroupResource()))
	}
}
