package clusterinformers_test

import (
	"fmt"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

func TestWatch_ExpiredRelistsOneScopeOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		expire func(*rig, *sim.Member)
	}{
		{"HTTP status", func(_ *rig, m *sim.Member) {
			m.Faults().Add(sim.Fault{Verb: "watch", Kind: pods, Status: 410, Times: 1})
			m.DropWatches(pods)
		}},
		{"error event", func(r *rig, m *sim.Member) {
			// The member goes on while the watch cannot, and forgets.
			hold := m.Faults().Add(sim.Fault{Verb: "watch", Kind: pods, Status: 503})
			m.DropWatches(pods)
			r.untilState(m, "Pod", aggregate.Stale)
			ok(t, m.Delete(pods, pod(0).Namespace, pod(0).Name))
			touch(t, m, 1, "missed")
			m.Compact(pods)
			hold()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := fewKinds()
			r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 20) })
			m := r.fleet.Members()[0]
			all, ofPods := r.allLists(m), r.lists(m, pods)
			tt.expire(r, m)
			r.until("pods were listed again", func() bool { return r.lists(m, pods) > ofPods })
			r.synced(m)
			r.exact(m, opts.Kinds)
			if got := r.detail(m, "Pod").Relists; got["expired"] != 1 || len(got) != 2 {
				t.Errorf("relists %v, want initial and expired once each", got)
			}
			if n, o := r.lists(m, pods)-ofPods, r.allLists(m)-all; n != 1 || o != 1 {
				t.Errorf("%d lists of pods, %d of all kinds; want 1 and 1: %v", n, o, m.Requests().All())
			}
		})
	}
}

func TestWatch_ExpiredWhileListedKeepsObjectsStale(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 20) })
	m := r.fleet.Members()[0]
	hold := m.Faults().Add(sim.Fault{Verb: "watchlist", Kind: pods, Hang: true})
	m.Faults().Add(sim.Fault{Verb: "watch", Kind: pods, Status: 410, Times: 1})
	m.DropWatches(pods)
	r.untilState(m, "Pod", aggregate.Stale)
	if n := len(r.held(m, "Pod")); n != 20 {
		t.Errorf("%d pods during the list, want the 20 that are known", n)
	}
	hold()
	r.synced(m)
}

func TestList_WhereMembersCannotStream(t *testing.T) {
	opts := fewKinds()
	r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		fill(t, m, 700) // more than a page
		m.Faults().Add(sim.Fault{Verb: "watchlist", Status: 403})
	})
	m := r.fleet.Members()[0]
	if m.Requests().Verb("list") == 0 {
		t.Error("nothing was listed: the test tests nothing")
	}
	r.exact(m, opts.Kinds)
	touch(t, m, 3, "x")
	r.touched(m, 3, "x")
	// An object held at the listed version keeps its revision.
	before := r.index.Snapshot()
	lists := r.lists(m, pods)
	m.Faults().Add(sim.Fault{Verb: "watch", Kind: pods, Status: 410, Times: 1})
	m.DropWatches(pods)
	r.until("pods were listed again", func() bool { return r.lists(m, pods) > lists })
	r.synced(m)
	r.exact(m, opts.Kinds)
	ref := aggregate.Ref{Member: nameOf(m), Kind: "Pod", Namespace: pod(7).Namespace, Name: pod(7).Name}
	was, _ := before.Get(ref)
	is, _ := r.index.Snapshot().Get(ref)
	if was.Revision() != is.Revision() || is.IsZero() {
		t.Errorf("revision of an unchanged object: %d before the list, %d after", was.Revision(), is.Revision())
	}
}

func TestList_RepeatsSpoiltInitialLists(t *testing.T) {
	for _, way := range []string{"watchlist", "list"} {
		for n, f := range []sim.Fault{
			{Truncate: 900}, {Garbage: true}, {Reset: true}, {Huge: 1 << 20}, {Status: 429, RetryAfter: 1}, {Status: 500}, {Status: 503},
		} {
			t.Run(fmt.Sprintf("%s %d", way, n), func(t *testing.T) {
				opts := fewKinds()
				r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) {
					m := r.fleet.Members()[0]
					fill(t, m, 30)
					if way == "list" {
						m.Faults().Add(sim.Fault{Verb: "watchlist", Status: 403})
					}
					f.Verb, f.Kind, f.Times = way, pods, 1
					m.Faults().Add(f)
				}).start()
				m := r.fleet.Members()[0]
				r.synced(m)
				r.exact(m, opts.Kinds)
			})
		}
	}
}

func TestWatch_ScopesResumeSoonAndNotAtOnce(t *testing.T) {
	r := follow(t, sim.Options{Members: 1}, nil)
	m := r.fleet.Members()[0]
	kinds := len(loud())
	m.Cut()
	r.until("the scopes are stale", func() bool { return r.all(m, aggregate.Stale) })
	before := m.Requests().Verb("watch")
	ok(t, m.Restore())
	started := time.Now()
	r.until("a quarter of the watches is back", func() bool { return m.Requests().Verb("watch")-before >= kinds/4 })
	r.until("all are back", func() bool { return r.all(m, aggregate.Synced) })
	took := time.Since(started)
	// 50 a second after a burst of 25, and a probe that may come 5 s late.
	if most := 6*time.Second + time.Duration(kinds)*time.Second/50; took > most {
		t.Errorf("%d watches took %s, want at most %s", kinds, took, most)
	}
	if n := m.Requests().Verb("watch") - before; n != kinds {
		t.Errorf("%d watches opened for %d scopes", n, kinds)
	}
}

func TestWatch_StaleWhenItCannotBeReopened(t *testing.T) {
	r := follow(t, fewKinds(), nil)
	m := r.fleet.Members()[0]
	reset := m.Faults().Add(sim.Fault{Verb: "watch", Kind: pods, Reset: true})
	m.DropWatches(pods) // as at a watch's timeout: no error to see
	r.untilState(m, "Pod", aggregate.Stale)
	reset()
	r.synced(m)
}

func TestWatch_StaleWhenListedButNotWatchable(t *testing.T) {
	opts := fewKinds()
	r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		fill(t, m, 5)
		m.Faults().Add(sim.Fault{Verb: "watchlist", Status: 403})
		m.Faults().Add(sim.Fault{Verb: "watch", Status: 503})
	}).start()
	m := r.fleet.Members()[0]
	r.until("all scopes are stale", func() bool { return r.all(m, aggregate.Stale) && len(r.held(m, "Pod")) == 5 })
	touch(t, m, 1, "x")
	m.Faults().Clear()
	r.synced(m)
	r.exact(m, opts.Kinds)
}

func TestWatch_BacksOffWhileTheMemberAnswers(t *testing.T) {
	for _, f := range []sim.Fault{{Reset: true}, {Status: 401}} {
		f.Verb, f.Kind = "watch", pods
		opts := fewKinds()
		r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 5) })
		m := r.fleet.Members()[0]
		clear := m.Faults().Add(f)
		m.DropWatches(pods)
		touch(t, m, 1, "x")
		r.untilState(m, "Pod", aggregate.Stale)
		before := m.Requests().Total()
		// Some seven tries and as many probes of two requests; a reset takes the
		// watches of the other kinds with it each time.
		r.during(time.Second, "few requests", func() bool { return m.Requests().Total()-before < 70 })
		clear()
		r.synced(m)
		r.exact(m, opts.Kinds)
		r.end()
	}
}
