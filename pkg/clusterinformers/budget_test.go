package clusterinformers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/sim"
)

func TestBudget_EmptiesOnlyTheScopeThatExceedsIt(t *testing.T) {
	for _, tt := range []struct {
		name   string
		budget clusterinformers.Budget
		way    string // in which lists come
	}{
		{"objects, streamed", clusterinformers.Budget{Objects: 100}, "watchlist"},
		{"objects, listed", clusterinformers.Budget{Objects: 100}, "list"},
		{"bytes, streamed", clusterinformers.Budget{Bytes: 50_000}, "watchlist"},
		{"bytes, listed", clusterinformers.Budget{Bytes: 50_000}, "list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := fewKinds()
			opts.Members = 2
			r := newRig(t, opts, func(r *rig, o *clusterinformers.Options) {
				o.Budget = tt.budget
				for i := range 1200 {
					ok(t, r.fleet.Members()[0].Create(pod(i)))
				}
				for _, m := range r.fleet.Members() {
					for i := range 10 {
						ok(t, m.Create(configMap(i)))
					}
					if tt.way == "list" {
						m.Faults().Add(sim.Fault{Verb: "watchlist", Status: 403})
					}
				}
			}).start()
			fat, other := r.fleet.Members()[0], r.fleet.Members()[1]
			r.untilState(fat, "Pod", aggregate.OverBudget)
			r.until("everything has come to rest", func() bool { return r.status(fat).Synced && r.status(other).Synced })
			if info := r.scope(fat, "Pod"); info.Objects != 0 || info.Status.Reason == "" {
				t.Errorf("%d pods are kept, reason %q", info.Objects, info.Status.Reason)
			}
			for _, kind := range []aggregate.Kind{"ConfigMap", "Namespace", "Node", "Secret"} {
				if got := r.state(fat, kind); got != aggregate.Synced {
					t.Errorf("%s of the same member is %s, want Synced", kind, got)
				}
			}
			r.exact(fat, kindsOf("ConfigMap", "Namespace"))
			r.exact(other, opts.Kinds)
			ok(t, fat.Patch(configMaps, "default", "cm-1", []byte(`{"data":{"more":"x"}}`)))
			r.exact(fat, kindsOf("ConfigMap"))
		})
	}
}

func TestBudget_EmptiesOnlyTheScopeThatGrowsBeyondIt(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.Budget.Objects, o.MetricsPerScope = 60, true
		fill(t, r.fleet.Members()[0], 20)
	})
	m := r.fleet.Members()[0]
	for i := 20; i < 80; i++ {
		ok(t, m.Create(pod(i)))
	}
	r.untilState(m, "Pod", aggregate.OverBudget)
	ok(t, m.Create(configMap(70)))
	r.exact(m, kindsOf("ConfigMap"))
	r.until("the account is settled", func() bool { return r.metric("federator_scope_objects", nameOf(m), "Pod") == 0 })
	if got := r.state(m, "ConfigMap"); got != aggregate.Synced {
		t.Errorf("ConfigMap is %s", got)
	}
}

func TestBudget_WatchEventThatExceedsItEmptiesTheScope(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.Budget.ResponseBytes = 20_000
		fill(t, r.fleet.Members()[0], 5)
	})
	m := r.fleet.Members()[0]
	ok(t, m.Patch(configMaps, "default", "cm-1", fmt.Appendf(nil, `{"data":{"big":%q}}`, strings.Repeat("x", 30_000))))
	r.untilState(m, "ConfigMap", aggregate.OverBudget)
	touch(t, m, 1, "x")
	r.touched(m, 1, "x")
}

// What is received counts while it comes, however small the object that is made of it:
// values of ConfigMaps are cut.
func TestBudget_CountsResponsesInFlight(t *testing.T) {
	big := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"big": strings.Repeat("x", 600_000)},
		}
	}
	for _, way := range []string{"watchlist", "list", "event"} {
		t.Run(way, func(t *testing.T) {
			opts := fewKinds()
			r := newRig(t, opts, func(r *rig, o *clusterinformers.Options) {
				o.Budget.Bytes = 400_000
				m := r.fleet.Members()[0]
				fill(t, m, 5)
				if way == "list" {
					m.Faults().Add(sim.Fault{Verb: "watchlist", Status: 403})
				}
				if way != "event" {
					ok(t, m.Create(big("big")))
				}
			}).start()
			m := r.fleet.Members()[0]
			if way == "event" {
				r.synced(m)
				ok(t, m.Create(big("big")))
			}
			r.untilState(m, "ConfigMap", aggregate.OverBudget)
			touch(t, m, 1, "x")
			r.touched(m, 1, "x")
		})
	}
}

func TestBudget_RelistNeedsNoSecondOne(t *testing.T) {
	for _, way := range []string{"watchlist", "list"} {
		opts := fewKinds()
		r := follow(t, opts, func(r *rig, o *clusterinformers.Options) {
			o.Budget.Objects = 120
			m := r.fleet.Members()[0]
			for i := range 100 {
				ok(t, m.Create(pod(i)))
			}
			if way == "list" {
				m.Faults().Add(sim.Fault{Verb: "watchlist", Status: 403})
			}
		})
		m := r.fleet.Members()[0]
		m.Faults().Add(sim.Fault{Verb: "watch", Kind: pods, Status: 410, Times: 1})
		m.DropWatches(pods)
		r.until("pods were listed again", func() bool {
			return r.detail(m, "Pod").Relists["expired"] == 1 || r.state(m, "Pod") == aggregate.OverBudget
		})
		r.synced(m)
		r.exact(m, opts.Kinds)
		r.end()
	}
}

func TestSlots_BoundParallelSyncsWithoutStarvation(t *testing.T) {
	opts := fewKinds()
	opts.Members = 6
	r := newRig(t, opts, func(r *rig, o *clusterinformers.Options) {
		o.ParallelSyncs = len(opts.Kinds) // what hangs could take all of them
		for i, m := range r.fleet.Members() {
			fill(t, m, 20)
			if i == 0 {
				m.Faults().Add(sim.Fault{Verb: "watchlist", Hang: true})
			}
		}
	}).start()
	hung := r.fleet.Members()[0]
	r.until("the one that hangs has been queried", func() bool { return hung.Requests().Verb("watchlist") > 0 })
	started := time.Now()
	for _, m := range r.fleet.Members()[1:] {
		r.synced(m)
		r.exact(m, opts.Kinds)
	}
	if took := time.Since(started); took > 4*time.Second {
		t.Errorf("the others took %s: they have waited for the one that hangs", took)
	}
	if n := r.status(hung).Scopes[aggregate.Syncing]; n != len(opts.Kinds) {
		t.Errorf("%d scopes of the one that hangs are Syncing, want all %d", n, len(opts.Kinds))
	}
	hung.Faults().Clear()
	r.synced(hung)
	r.exact(hung, opts.Kinds)
}

func TestManager_ReadyGivesUpOnMembersThatDoNotSync(t *testing.T) {
	opts := fewKinds()
	opts.Members = 3
	r := newRig(t, opts, func(r *rig, o *clusterinformers.Options) {
		o.GiveUpAfter = 1500 * time.Millisecond
		r.fleet.Members()[0].Cut()
		r.source.view[1].Refused = &connection.Refusal{Reason: connection.Deleting, Message: "the Cluster is being deleted"}
	})
	if ready, waiting := r.manager.Ready(); ready || len(waiting) != 1 || waiting[0] != "member sources" {
		t.Errorf("before Run: ready %t, waiting for %v", ready, waiting)
	}
	r.start()
	r.synced(r.fleet.Members()[2])
	if ready, waiting := r.manager.Ready(); ready || len(waiting) != 1 || waiting[0] != nameOf(r.fleet.Members()[0]) {
		t.Errorf("ready %t, waiting for %v, want the one that is cut off", ready, waiting)
	}
	r.within(5*time.Second, "ready without it", func() bool { ready, _ := r.manager.Ready(); return ready })
}

func TestManager_NotReadyBeforeMembersHaveSynced(t *testing.T) {
	for range 20 {
		r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 3) }).start()
		for deadline := time.Now().Add(patience); ; {
			if ready, _ := r.manager.Ready(); ready {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("not ready in time")
			}
		}
		if !r.all(r.fleet.Members()[0], aggregate.Synced) || len(r.held(r.fleet.Members()[0], "Pod")) != 3 {
			t.Fatal("ready before the member has synced")
		}
		r.end()
	}
}

func TestManager_RunReturnsWhileMembersHang(t *testing.T) {
	for _, verb := range []string{"version", "discovery", "get", "watchlist", "list", "watch"} {
		t.Run(verb, func(t *testing.T) {
			opts := fewKinds()
			r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) {
				m := r.fleet.Members()[0]
				m.Faults().Add(sim.Fault{Verb: verb, Hang: true})
				if verb == "list" || verb == "watch" {
					m.Faults().Add(sim.Fault{Verb: "watchlist", Status: 403})
				}
			}).start()
			r.until("the member hangs", func() bool {
				return r.fleet.Members()[0].Faults().Seen() > 0 && (verb != "list" || r.fleet.Members()[0].Requests().Verb("list") > 0)
			})
			started := time.Now()
			r.end() // goleak looks when the test ends
			if took := time.Since(started); took > 2*time.Second {
				t.Errorf("Run took %s to return", took)
			}
		})
	}
}

func TestManager_RemovesAMemberThatHangs(t *testing.T) {
	opts := fewKinds()
	opts.Members = 2
	r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) {
		r.fleet.Members()[0].Faults().Add(sim.Fault{Verb: "watchlist", Hang: true})
	}).start()
	hung, fine := r.fleet.Members()[0], r.fleet.Members()[1]
	r.synced(fine)
	r.until("it hangs", func() bool { return hung.Faults().Seen() > 0 })
	r.source.set(specOf(t, fine))
	r.within(2*time.Second, "the hanging member has left", func() bool {
		_, there := r.index.Snapshot().Member(nameOf(hung))
		return !there
	})
}

// TestBudget_IsSaidWithWhatIsHeld of a member against it.
func TestBudget_IsSaidWithWhatIsHeld(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.Budget = clusterinformers.Budget{Objects: 1234, Bytes: 64 << 20}
		fill(t, r.fleet.Members()[0], 30)
	})
	m := r.fleet.Members()[0]
	r.until("all is charged", func() bool {
		b := r.status(m).Budget
		return b.Objects == int64(r.status(m).Objects) && b.Bytes > 0
	})
	got, ok := r.manager.Member(nameOf(m))
	if b := got.Budget; !ok || b.Objects < 30 || b.MaxObjects != 1234 || b.MaxBytes != 64<<20 || got.Name != nameOf(m) || got.State != connection.Connected || got.Objects != int(b.Objects) || got.Details != nil {
		t.Errorf("%+v, %t", got, ok)
	}
	if got, ok := r.manager.Member("fleet/nobody"); ok {
		t.Errorf("of nobody: %+v", got)
	}
}
