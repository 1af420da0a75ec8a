package resources_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/resources"
)

// callerWithChangingGrants is a caller whose grants may be replaced at any time; they expire
// after a minute.
type callerWithChangingGrants struct {
	caller
	may atomic.Pointer[map[string]authz.MemberGrant]
}

func newCallerWithChangingGrants(name string, may map[string]authz.MemberGrant) *callerWithChangingGrants {
	c := &callerWithChangingGrants{}
	c.may.Store(&may)
	c.caller = caller{name, func(string) (*authz.Grants, error) {
		return authz.NewGrants(*c.may.Load(), time.Now().Add(time.Minute)), nil
	}}
	return c
}

// clientState is the state of a client, which applies a list and then events.
type clientState struct {
	keys     map[string]string // and their own version
	revision string
}

func (f *fleet) clientState(c resources.Caller, path string) clientState {
	a := f.mustAsk(c, path, nil, "")
	m := clientState{map[string]string{}, a.list.Metadata.ResourceVersion}
	for _, o := range a.list.Items {
		m.keys[keyOf(o)] = versionOf(o)
	}
	return m
}

func (m clientState) with(events []event) clientState {
	m.keys = maps.Clone(m.keys)
	for _, e := range events {
		m.revision = e.revision()
		switch e.Type {
		case "BOOKMARK":
		case "DELETED":
			delete(m.keys, keyOf(e.Object))
		default:
			m.keys[keyOf(e.Object)] = versionOf(e.Object)
		}
	}
	return m
}

// resume returns the client's state after it has reconnected: with a watch, or with a list
// where the watch has expired.
func (m clientState) resume(f *fleet, c resources.Caller, path string) clientState {
	f.t.Helper()
	s := f.watch(c, path, values("resourceVersion", m.revision, "allowWatchBookmarks", "1"), "")
	select {
	case <-s.open:
		return m.with(s.end())
	case <-s.done:
	}
	if s.status.Code != http.StatusGone {
		f.t.Fatalf("resumed at %s: %+v", m.revision, s.status)
	}
	m = f.clientState(c, path)
	return m.with(f.watch(c, path, values("resourceVersion", m.revision), "").end()) // or it would list for ever
}

// TestWatch_GrantsThatChangeAreNotLostWhereverAWatchBreaks: a client that has received some
// of the events of a change of its grants, or none, holds the right objects once it has
// reconnected.
func TestWatch_GrantsThatChangeAreNotLostWhereverAWatchBreaks(t *testing.T) {
	for name, quiet := range map[string]bool{"quiet": true, "busy": false} {
		for _, path := range []string{fleetPods, "/flat/api/v1/pods"} {
			for _, bookmarks := range []string{"0", "1"} {
				t.Run(fmt.Sprint(name, path, bookmarks), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { breakAnywhere(t, path, bookmarks, quiet) })
				})
			}
		}
	}
}

func breakAnywhere(t *testing.T, path, bookmarks string, quiet bool) {
	for cut := 0; ; cut++ {
		f := newFleet(t, settings{clock: time.Now, bookmark: time.Hour})
		for _, m := range memberNames[:3] {
			f.join(m)
			for i := range 3 {
				f.put(pod(m, "blue", fmt.Sprint("p", i)))
				f.commit()
			}
		}
		c := newCallerWithChangingGrants("bob", map[string]authz.MemberGrant{"a/east": {All: true}, "a/west": {All: true}})
		client := f.clientState(c.caller, path)
		s := f.watch(c, path, values("resourceVersion", client.revision, "allowWatchBookmarks", bookmarks), "")
		if !quiet {
			f.put(pod("a/west", "blue", "p1"))
			f.commit()
			s.wait(1)
		}
		c.may.Store(&map[string]authz.MemberGrant{"a/west": {All: true}, "b/east": {All: true}})
		time.Sleep(2 * time.Minute) // synctest time
		if !quiet {
			f.put(pod("b/east", "blue", "p1"))
			f.commit()
		}
		events := s.end()
		if cut > len(events) {
			if cut < 7 {
				t.Errorf("only %d events", len(events))
			}
			return
		}
		other := f.clientState(c.caller, path) // another client of the caller has listed since
		client = client.with(events[:cut])
		if cut%2 == 0 {
			f.put(pod("a/west", "blue", "p2"))
			f.commit()
			other = f.clientState(c.caller, path)
		}
		if got := client.resume(f, c.caller, path); !maps.Equal(got.keys, other.keys) {
			t.Fatalf("cut after %d events at %s: the client holds %q, want %q", cut, client.revision, slices.Sorted(maps.Keys(got.keys)), slices.Sorted(maps.Keys(other.keys)))
		}
	}
}

// TestWatch_GrantsThatChangeBetweenWatchesAreNotLost: no watch is open.
func TestWatch_GrantsThatChangeBetweenWatchesAreNotLost(t *testing.T) {
	few, more := map[string]authz.MemberGrant{"a/east": {All: true}}, map[string]authz.MemberGrant{"a/east": {All: true}, "a/west": {Namespaces: []string{"blue"}}}
	for name, may := range map[string][2]map[string]authz.MemberGrant{"given": {few, more}, "taken": {more, few}} {
		f, _ := pair(t)
		c := newCallerWithChangingGrants("bob", may[0])
		client := f.clientState(c.caller, fleetPods)
		c.may.Store(&may[1])
		want := f.clientState(c.caller, fleetPods)
		if got := client.resume(f, c.caller, fleetPods); !maps.Equal(got.keys, want.keys) {
			t.Errorf("%s: the client holds %q, want %q", name, got.keys, want.keys)
		}
	}
}

// TestWatch_LearnsOfGrantsFromOtherRequests, before they send anything more by
// the grants that they have: later it would be unknown by which grants it was sent.
func TestWatch_LearnsOfGrantsFromOtherRequests(t *testing.T) {
	f, _ := pair(t)
	c := newCallerWithChangingGrants("bob", map[string]authz.MemberGrant{"a/east": {All: true}})
	s := f.watch(c, fleetPods, values("resourceVersion", f.clientState(c.caller, fleetPods).revision), "")
	c.may.Store(&map[string]authz.MemberGrant{"a/west": {All: true}})
	f.watch(c, fleetPods, nil, "").end()
	f.put(pod("a/east", "blue", "p1"), pod("a/west", "blue", "p1"))
	f.commit()
	wantEvents(t, "a watch of other grants", s.end(), "DELETED a/east blue p0", "ADDED a/west blue p0", "ADDED a/west blue p1")
}

// TestWatch_ContinuesWithGrantsOtherThanThoseOfLists: a watch whose grants differ from
// those of list continues; only a change of its own grants ends it.
func TestWatch_ContinuesWithGrantsOtherThanThoseOfLists(t *testing.T) {
	f, start := pair(t)
	c := caller{"bob", func(verb string) (*authz.Grants, error) {
		may := map[string]authz.MemberGrant{"a/east": {All: true}}
		if verb == "list" {
			may["a/west"] = authz.MemberGrant{All: true}
		}
		return authz.NewGrants(may, time.Time{}), nil
	}}
	f.clientState(c, fleetPods)
	f.put(pod("a/east", "blue", "p1"), pod("a/west", "blue", "p1"))
	f.commit()
	wantEvents(t, "a watch of less than a list", f.watch(c, fleetPods, values("resourceVersion", text(start)), "").end(), "ADDED a/east blue p1")
}
