package clusterinformers_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// hasAll waits until a member's Pods are Synced, and all there that there were.
func (l *lives) hasAll(name int, want int) {
	l.t.Helper()
	m := l.fleet.Members()[name]
	if want == 0 {
		l.t.Fatal("there were none")
	}
	l.untilState(m, "Pod", aggregate.Synced)
	l.until("all Pods are held", func() bool { return len(l.held(m, "Pod")) == want })
}

// TestManager_LoadedKindsAwaitPolicies: a kind that is held because a policy requires it stays until the
// policies were read, and goes on then without a list: no reader is told that its objects are gone.
func TestManager_LoadedKindsAwaitPolicies(t *testing.T) {
	l := newLives(t, fewKinds(), populate)
	m := l.fleet.Members()[0]
	want := len(l.held(m, "Pod"))
	l.restart(nil, func(o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{{Kind: "Namespace"}, {Kind: "Node"}}
	})
	from := l.index.Snapshot().Revision()
	l.untilState(m, "Namespace", aggregate.Synced)
	if got := len(l.held(m, "Pod")); got != want {
		t.Errorf("before the policies were read there are %d Pods of %d", got, want)
	}
	l.manager.RequireKinds([]aggregate.Kind{"Pod"})
	l.hasAll(0, want)
	changes, err := l.index.ChangesOf("Pod", from)
	if err != nil {
		t.Fatal(err)
	}
	for c := range changes {
		if c.After.IsZero() {
			t.Errorf("readers were told that %s is gone", c.Before.Ref())
		}
	}
	if n := l.lists(m, pods); n != 0 {
		t.Errorf("Pods were listed %d times", n)
	}
}

// TestManager_LoadedKindsThatNothingSelectsLeave: once the policies had the time to be read.
func TestManager_LoadedKindsThatNothingSelectsLeave(t *testing.T) {
	l := newLives(t, fewKinds(), populate)
	m := l.fleet.Members()[0]
	l.restart(nil, func(o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{{Kind: "Namespace"}, {Kind: "Node"}}
		o.GiveUpAfter = time.Second
	})
	l.until("Pods have left", func() bool { return len(l.held(m, "Pod")) == 0 })
}

// withoutPods makes a fleet whose first member does not serve Pods while hidden says so; the second never does.
func withoutPods(t *testing.T, hidden *atomic.Bool) *lives {
	t.Helper()
	fleet := fewKinds()
	fleet.Members = 2
	return newLives(t, fleet, func(r *rig) {
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
}

// TestManager_KindThatIsAwayAtTheStartIsListed: one that the member does not serve when it is discovered first
// is emptied, and does not go on from the resourceVersion of what it had.
func TestManager_KindThatIsAwayAtTheStartIsListed(t *testing.T) {
	var hidden atomic.Bool
	l := withoutPods(t, &hidden)
	a := l.fleet.Members()[0]
	want := len(l.held(a, "Pod"))
	hidden.Store(true)
	l.restart(nil, func(o *clusterinformers.Options) { o.DiscoveryInterval = 300 * time.Millisecond })
	l.until("Pods are not served", func() bool { return l.state(a, "Pod") != aggregate.Stale })
	hidden.Store(false)
	l.hasAll(0, want)
}

// TestManager_KindThatWasAwayAtTheEndIsListed: one that was emptied before the restart.
func TestManager_KindThatWasAwayAtTheEndIsListed(t *testing.T) {
	var hidden atomic.Bool
	l := withoutPods(t, &hidden)
	a := l.fleet.Members()[0]
	quick := func(o *clusterinformers.Options) {
		o.DiscoveryInterval = 300 * time.Millisecond
		o.Kinds = []clusterinformers.KindRule{{Kind: "Pod"}, {Kind: "*"}} // Pods have a scope in each member
	}
	l.restart(nil, quick)
	l.synced(a)
	want := len(l.held(a, "Pod"))
	hidden.Store(true)
	l.untilState(a, "Pod", aggregate.NotServed)
	l.restart(func() { hidden.Store(false) }, quick)
	l.hasAll(0, want)
}

// TestManager_LoadedKindThatIsRefusedIsUnread: what an earlier process has read of a kind that may not be read
// any more counts as read by nobody.
func TestManager_LoadedKindThatIsRefusedIsUnread(t *testing.T) {
	l := newLives(t, fewKinds(), populate)
	m := l.fleet.Members()[0]
	l.restart(func() { m.Faults().Add(sim.Fault{Kind: pods, Status: http.StatusForbidden}) }, nil)
	l.untilState(m, "Pod", aggregate.Forbidden)
	if s := l.scope(m, "Pod"); s.Status.Read() && s.Objects > 0 {
		t.Errorf("Pods are %+v with %d objects that this process has not read", s.Status, s.Objects)
	}
}
