package resources_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// pair returns a fleet of two members with a pod each, and its revision.
func pair(t testing.TB) (*fleet, aggregate.Revision) {
	t.Helper()
	f := newFleet(t, settings{})
	for _, m := range memberNames[:2] {
		f.join(m, "env", "prod")
		f.put(pod(m, "blue", "p0"))
	}
	return f, f.commit()
}

// TestWatch_IsResumedWithinItsGrants: what was added is no hindrance, but of a
// member that has left nobody knows what was granted.
func TestWatch_IsResumedWithinItsGrants(t *testing.T) {
	f, start := pair(t)
	f.put(pod("a/east", "blue", "p1"), pod("a/west", "blue", "p1"))
	f.commit()
	some := granted(authz.NewGrants(map[string]authz.MemberGrant{"a/east": {All: true}}, time.Time{}))
	from := values("resourceVersion", text(start))
	wantEvents(t, "some", f.watch(some, fleetPods, from, "").end(), "ADDED a/east blue p1")
	wantEvents(t, "all", f.watch(all, fleetPods, from, "").end(), "ADDED a/east blue p1", "ADDED a/west blue p1")
	f.leave("a/west")
	wantEvents(t, "all", f.watch(all, fleetPods, from, "").end(), "ADDED a/east blue p1", "ADDED a/west blue p1", "DELETED a/west blue p0", "DELETED a/west blue p1")
	f.watch(some, fleetPods, from, "").wantExpired("some")
}

// TestWatch_SaysWhatIsNotFreshWithinTheGrants, and within the selection.
func TestWatch_SaysWhatIsNotFreshWithinTheGrants(t *testing.T) {
	f, _ := pair(t)
	for _, m := range memberNames[:2] {
		f.scope(m, pods).SetStatus(aggregate.Status{State: aggregate.Stale})
	}
	f.commit()
	some := granted(authz.NewGrants(map[string]authz.MemberGrant{"a/east": {Namespaces: []string{"blue"}}}, time.Time{}))
	for _, c := range []struct {
		caller         caller
		selector, want string
	}{
		{all, "", "a/east;state=Stale, a/west;state=Stale"},
		{some, "", "a/east;state=Stale"},
		{all, "federator.dev/member=a.west", "a/west;state=Stale"},
		{some, "federator.dev/member=a.west", ""},
	} {
		s := f.watch(c.caller, fleetPods, values("labelSelector", c.selector), "")
		s.end()
		if got := s.header.Get("Federator-Not-Synced"); got != c.want {
			t.Errorf("%q: %q, want %q", c.selector, got, c.want)
		}
	}
}

// TestWatch_ChangesOfMembersAreNotMissedBetweenWatches: where a label of members
// selects, a client that was away when one changed lists again.
func TestWatch_ChangesOfMembersAreNotMissedBetweenWatches(t *testing.T) {
	const prod = "member.federator.dev/env=prod"
	for name, c := range map[string]struct {
		change   func(f *fleet)
		selector string
		want     []string // nil: 410
	}{
		"nothing":                  {func(*fleet) {}, prod, []string{"ADDED a/east blue p1"}},
		"relabelled":               {func(f *fleet) { f.join("a/west", "env", "test") }, prod, nil},
		"left":                     {func(f *fleet) { f.leave("a/west") }, prod, nil},
		"another came":             {func(f *fleet) { f.join("b/east", "env", "prod") }, prod, []string{"ADDED a/east blue p1"}},
		"replaced, as before":      {func(f *fleet) { f.leave("a/west"); f.join("a/west", "env", "prod") }, prod, []string{"DELETED a/west blue p0", "ADDED a/east blue p1"}},
		"replaced":                 {func(f *fleet) { f.leave("a/west"); f.join("a/west", "env", "test") }, prod, nil},
		"relabelled, not selected": {func(f *fleet) { f.join("a/west", "env", "test") }, "federator.dev/member-namespace=a", []string{"ADDED a/east blue p1"}},
		"left, not selected":       {func(f *fleet) { f.leave("a/west") }, "!x", []string{"DELETED a/west blue p0", "ADDED a/east blue p1"}},
	} {
		f, _ := pair(t)
		query := values("labelSelector", c.selector)
		a := f.mustAsk(all, fleetPods, query, "")
		if len(a.list.Items) != 2 {
			t.Fatalf("%s: %s", name, a.body)
		}
		query.Set("resourceVersion", a.list.Metadata.ResourceVersion)
		c.change(f)
		f.put(pod("a/east", "blue", "p1"))
		f.commit()
		if c.want != nil {
			wantEvents(t, name, f.watch(all, fleetPods, query, "").end(), c.want...)
			continue
		}
		f.watch(all, fleetPods, query, "").wantExpired(name)
	}
}

// TestWatch_MemberThatReturnsIsFollowed, when a watch sees its leave and its return
// at once.
func TestWatch_MemberThatReturnsIsFollowed(t *testing.T) {
	f, start := pair(t)
	s := f.watch(all, fleetPods, values("resourceVersion", text(start), "labelSelector", "member.federator.dev/env=prod"), "")
	f.put(pod("a/east", "blue", "p1"))
	s.held.Lock()
	f.commit()
	f.leave("a/west")
	f.join("a/west", "env", "prod")
	s.held.Unlock()
	s.wait(2)
	f.put(pod("a/west", "blue", "p0"))
	f.commit()
	wantEvents(t, "a member that returns", s.end(), "ADDED a/east blue p1", "DELETED a/west blue p0", "ADDED a/west blue p0")
}

// TestWatch_MemberThatChangesWhileAWatchBeginsIsNoLoss: changes from before the
// watch are sent as members were then.
func TestWatch_MemberThatChangesWhileAWatchBeginsIsNoLoss(t *testing.T) {
	f, _ := pair(t)
	query := values("labelSelector", "member.federator.dev/env=prod")
	query.Set("resourceVersion", f.mustAsk(all, fleetPods, query, "").list.Metadata.ResourceVersion)
	f.remove(f.objects[pods]["a/west blue p0"])
	f.put(pod("a/west", "blue", "p1"))
	f.commit()
	late := all
	late.grants = func(verb string) (*authz.Grants, error) { // requested once the watch has its snapshot
		f.join("a/west", "env", "test")
		return all.grants(verb)
	}
	wantEvents(t, "a member that turns", f.watch(late, fleetPods, query, "").end(),
		"DELETED a/west blue p0", "ADDED a/west blue p1", "DELETED a/west blue p1")
}

// TestWatch_RenewsGrants when their time is up: what they add comes, what they
// lack goes, and a bookmark says from where to resume.
func TestWatch_RenewsGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, settings{clock: time.Now, bookmark: time.Hour})
		for _, m := range memberNames[:3] {
			f.join(m)
			f.put(pod(m, "blue", "p0"), pod(m, "red", "p0"))
		}
		now := f.commit()
		may := []map[string]authz.MemberGrant{
			{"a/east": {All: true}, "a/west": {Namespaces: []string{"blue"}}},
			{"a/east": {All: true}, "a/west": {Namespaces: []string{"red"}}},
			{"a/east": {All: true}, "a/west": {Namespaces: []string{"red"}}},
			{"b/east": {All: true}},
		}
		var requests atomic.Int32
		c := caller{"alice", func(string) (*authz.Grants, error) {
			i := int(requests.Add(1)) - 1
			if i == len(may) {
				return nil, errors.New("the hub is away")
			}
			return authz.NewGrants(may[i], time.Now().Add(time.Minute)), nil
		}}
		began := time.Now()
		s := f.watch(c, fleetPods, values("allowWatchBookmarks", "1"), "")
		<-s.done
		if took := time.Since(began); took != 4*time.Minute {
			t.Errorf("the watch ended after %s", took)
		}
		events := s.end()
		wantEvents(t, "grants that change", events[:6],
			"ADDED a/east blue p0", "ADDED a/east red p0", "ADDED a/west blue p0",
			"DELETED a/west blue p0", "ADDED a/west red p0", "BOOKMARK")
		var last []string
		for _, e := range events[6 : len(events)-1] {
			last = append(last, e.summary())
		}
		if e := events[len(events)-1]; e.summary() != "BOOKMARK" || e.revision() != text(now) {
			t.Errorf("%s at last, want a bookmark at %d", e.text, now)
		}
		slices.Sort(last) // members come in any order
		if want := []string{
			"ADDED b/east blue p0", "ADDED b/east red p0",
			"DELETED a/east blue p0", "DELETED a/east red p0", "DELETED a/west red p0",
		}; !slices.Equal(last, want) {
			t.Errorf("%q, want %q", last, want)
		}
	})
}

// TestWatch_RelabelledMembersAreAddedAndDeleted with their labels, where those select.
func TestWatch_RelabelledMembersAreAddedAndDeleted(t *testing.T) {
	f, start := pair(t)
	s := f.watch(all, fleetPods, values("resourceVersion", text(start), "labelSelector", "member.federator.dev/env=prod", "allowWatchBookmarks", "1"), "")
	held := revisionOf(t, field(f.mustAsk(all, "/members/a/west/api/v1/namespaces/blue/pods/p0", nil, "").object(t), "metadata", "resourceVersion"))
	f.join("a/west", "env", "test")
	events := s.wait(2)
	wantEvents(t, "a member that is relabelled", events, "DELETED a/west blue p0", "BOOKMARK")
	f.join("a/west", "env", "prod")
	events = s.wait(4)
	wantEvents(t, "and back", events[2:], "ADDED a/west blue p0", "BOOKMARK")
	if r := revisionOf(t, events[2].revision()); r != held {
		t.Errorf("an object that has not changed came at %d, it is of %d", r, held)
	}
	f.leave("a/west")
	f.join("b/east", "env", "prod")
	f.put(pod("b/east", "blue", "p0"))
	f.commit()
	wantEvents(t, "a leave and a join", s.end()[4:], "DELETED a/west blue p0", "ADDED b/east blue p0", "BOOKMARK")
}

// TestWatch_OpenWatchKeepsNoOldSnapshot alive, whose objects may be long gone.
func TestWatch_OpenWatchKeepsNoOldSnapshot(t *testing.T) {
	f, start := pair(t)
	first := weak.Make(f.index.Snapshot())
	s := f.watch(all, fleetPods, values("resourceVersion", text(start)), "")
	initial := f.watch(all, fleetPods, nil, "")
	f.put(pod("a/east", "blue", "p1"))
	f.commit()
	s.wait(1)
	initial.wait(3)
	deadline := time.Now().Add(30 * time.Second)
	for runtime.GC(); first.Value() != nil; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("the snapshot that the watches began with is still there")
		}
	}
	s.end()
	initial.end()
}

// TestWatch_BehindTheLogEndsWithinItsStep: a client that reads slowly keeps
// no more alive than the log of changes may.
func TestWatch_BehindTheLogEndsWithinItsStep(t *testing.T) {
	f := newFleet(t, settings{logBytes: 64 << 10})
	f.join("a/east")
	for i := range 600 {
		f.put(pod("a/east", "blue", fmt.Sprintf("p%04d", i)))
	}
	start := f.commit()
	f.slow = true
	initial := f.watch(all, fleetPods, nil, "")
	for i := range 600 {
		f.put(pod("a/east", "blue", fmt.Sprintf("p%04d", i)))
		f.commit()
	}
	initial.held.Unlock()
	<-initial.done
	events := initial.end()
	if n := len(events); n >= 600 || events[n-1].summary() != "ERROR 410" {
		t.Errorf("%d events, %s at last: want less than what there was, and 410", n, events[n-1].summary())
	}
	if initial.most > 128<<10 {
		t.Errorf("%d bytes were written at once", initial.most)
	}
	f.watch(all, fleetPods, values("resourceVersion", text(start)), "").wantExpired("it cannot be resumed")
}
