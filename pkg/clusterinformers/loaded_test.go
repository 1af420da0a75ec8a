package clusterinformers_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/persistence"
	"federator.dev/federator/test/sim"
)

// lives is a manager whose index is kept on disk, from one process to the next.
type lives struct {
	*rig
	dir    string
	block  uint64
	opts   clusterinformers.Options
	loaded persistence.Loaded
	stop   func()
}

// newLives makes a fleet and begins the first process.
func newLives(t *testing.T, fleet sim.Options, prepare func(*rig)) *lives {
	t.Helper()
	l := &lives{dir: t.TempDir()}
	l.rig = newRig(t, fleet, func(r *rig, o *clusterinformers.Options) {
		l.opts = *o
		l.opts.Audit.Off = true // the tests count lists
		if prepare != nil {
			prepare(r)
		}
	})
	l.begin(nil)
	for _, m := range l.fleet.Members() {
		l.synced(m)
	}
	return l
}

// begin begins a process, with options of its own.
func (l *lives) begin(change func(*clusterinformers.Options)) {
	t := l.t
	t.Helper()
	l.block++
	var err error
	if l.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(l.block), Hold: true}); err != nil {
		t.Fatal(err)
	}
	l.metrics = prometheus.NewRegistry()
	opts := l.opts
	opts.Index, opts.Metrics = l.index, l.metrics
	if change != nil {
		change(&opts)
	}
	if l.manager, err = clusterinformers.New(opts); err != nil {
		t.Fatal(err)
	}
	store, err := persistence.Open(persistence.Options{Directory: l.dir, Form: l.manager.Form, Boot: "boot", Log: slog.New(l.log)})
	if err != nil {
		t.Fatal(err)
	}
	if l.loaded, err = store.Load(t.Context(), l.index); err != nil {
		t.Fatal(err)
	}
	l.manager.Adopt()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	written := make(chan error, 1)
	go func() { written <- store.Run(ctx, l.index) }()
	l.start()
	end := l.end
	stopped := false
	l.stop = func() {
		if stopped {
			return
		}
		stopped = true
		end()
		cancel()
		if err := <-written; err != nil {
			t.Error(err)
		}
		store.Close()
	}
	t.Cleanup(l.stop)
}

// restart ends the process, has something happen, and begins another.
func (l *lives) restart(meanwhile func(), change func(*clusterinformers.Options)) {
	l.t.Helper()
	l.stop()
	if meanwhile != nil {
		meanwhile()
	}
	for _, m := range l.fleet.Members() {
		m.Requests().Reset()
	}
	clear(l.ownLists)
	l.begin(change)
}

// populate puts some objects into the members.
func populate(r *rig) {
	for _, m := range r.fleet.Members() {
		fill(r.t, m, 12)
	}
}

// alter changes, creates, deletes and replaces Pods.
func alter(t *testing.T, m *sim.Member, round int) {
	t.Helper()
	ok(t, m.Modify(pods, "default", "pod-0", func(o sim.Object) { o.SetLabels(map[string]string{"round": fmt.Sprint(round)}) }))
	ok(t, m.Delete(pods, "shop", "pod-1"))
	ok(t, m.Create(pod(1)))
	ok(t, m.Create(pod(100+round)))
}

// TestManager_ContinuesWhatWasLoaded: after a restart nothing is listed; what has changed meanwhile
// comes by watches that go on from where the process before had come.
func TestManager_ContinuesWhatWasLoaded(t *testing.T) {
	fleet := fewKinds()
	fleet.Members = 2
	l := newLives(t, fleet, populate)
	a, b := l.fleet.Members()[0], l.fleet.Members()[1]
	for _, m := range []*sim.Member{a, b} {
		l.exact(m, fleet.Kinds)
	}
	for round := range 2 { // the second restart continues what the first has loaded and changed
		before := l.held(b, "Pod")
		l.restart(func() {
			b.Cut()
			alter(t, a, round)
		}, nil)
		l.synced(a)
		l.exact(a, fleet.Kinds)
		if n := l.allLists(a); n != 0 {
			t.Errorf("%d lists of a member that was there: %v", n, a.Requests().All())
		}
		if got := l.held(b, "Pod"); !slices.Equal(got, before) || l.state(b, "Pod") != aggregate.Stale {
			t.Errorf("of the member that is away there are %d Pods, %s; want %d, Stale", len(got), l.state(b, "Pod"), len(before))
		}
		if !l.scope(b, "Pod").Status.Unread || l.scope(a, "Pod").Status.Unread {
			t.Error("what an earlier process has read is Loaded until this one goes on with it")
		}
		if st := l.detail(b, "Pod"); st.Objects != len(before) || st.State != aggregate.Stale || l.status(b).Objects < len(before) {
			t.Errorf("of the member that is away it says %+v", st)
		}
		if err := b.Restore(); err != nil {
			t.Fatal(err)
		}
		l.synced(b)
		l.exact(b, fleet.Kinds)
		if n := l.allLists(b); n != 0 {
			t.Errorf("%d lists of a member that was away: %v", n, b.Requests().All())
		}
	}
}

// TestManager_ListsWhatCannotBeContinued: what was loaded is of another cluster, of an earlier
// state of it, served or held otherwise, or too old.
func TestManager_ListsWhatCannotBeContinued(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, m *sim.Member, before string)
		version   string // of the server after the restart
		options   func(*clusterinformers.Options)
		uid       string // of the Cluster after the restart
		listed    []string
	}{
		"nothing": {listed: nil},
		"expired": {
			meanwhile: func(t *testing.T, m *sim.Member, _ string) { touch(t, m, 1, "x"); m.Compact(pods) },
			listed:    []string{"Pod"},
		},
		"another cluster": {
			meanwhile: func(t *testing.T, m *sim.Member, _ string) {
				ok(t, m.Delete(schema.GroupResource{Resource: "namespaces"}, "", "kube-system"))
				ok(t, m.Create(namespace("kube-system")))
			},
			listed: []string{"ConfigMap", "Namespace", "Node", "Pod", "Secret"},
		},
		"an earlier state": {
			meanwhile: func(t *testing.T, m *sim.Member, before string) { ok(t, m.Rewind(before)) },
			listed:    []string{"ConfigMap", "Namespace", "Node", "Pod", "Secret"},
		},
		"upgraded": {version: "v1.36.4", listed: []string{"ConfigMap", "Namespace", "Node", "Pod", "Secret"}},
		"narrowed": {
			options: func(o *clusterinformers.Options) {
				o.Kinds = []clusterinformers.KindRule{{Kind: "Pod", Drop: []string{"status"}}, {Kind: "*"}}
			},
			listed: []string{"Pod"},
		},
		"values kept": {
			options: func(o *clusterinformers.Options) { o.KeepSecretValues = true },
			listed:  []string{"ConfigMap", "Namespace", "Node", "Pod", "Secret"},
		},
		"recreated": {uid: "another", listed: []string{"ConfigMap", "Namespace", "Node", "Pod", "Secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := fewKinds()
			version := fleet.Version
			l := newLives(t, fleet, func(r *rig) {
				populate(r)
				r.source.view[0] = newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
					if req.URL.Path != "/version" || version == "" {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"major":"1","minor":"36","gitVersion":%q}`, version)
					return true
				}).spec
			})
			m := l.fleet.Members()[0]
			before := m.ResourceVersion()
			touch(t, m, 0, "known")
			ok(t, m.Create(namespace("known")))
			l.touched(m, 0, "known")
			l.until("the namespace is held", func() bool { return len(l.held(m, "Namespace")) == len(l.listed(m, kindsOf("Namespace")[0], nil)) })
			l.restart(func() {
				if version = c.version; c.meanwhile != nil {
					c.meanwhile(t, m, before)
				}
				if c.uid != "" {
					spec := l.source.view[0]
					spec.UID = c.uid
					l.source.set(spec)
				}
			}, c.options)
			listed := func() (listed []string) {
				for _, k := range fleet.Kinds {
					if l.lists(m, k.GroupResource()) > 0 {
						listed = append(listed, k.Kind)
					}
				}
				slices.Sort(listed)
				return listed
			}
			// A watch is answered before it says that it has expired.
			l.until("all is listed that cannot be continued", func() bool { return len(listed()) >= len(c.listed) })
			l.synced(m)
			if c.options == nil {
				l.exact(m, fleet.Kinds)
			}
			touch(t, m, 2, "after")
			l.touched(m, 2, "after")
			if got := listed(); !slices.Equal(got, c.listed) {
				t.Errorf("listed: %v, want %v", got, c.listed)
			}
		})
	}
}

// TestManager_RemovesMembersThatHaveLeft: what was loaded of a member that no source names any more
// goes, once all sources have spoken.
func TestManager_RemovesMembersThatHaveLeft(t *testing.T) {
	fleet := fewKinds()
	fleet.Members = 2
	l := newLives(t, fleet, populate)
	view := l.source.view
	l.restart(func() { l.source.view = nil }, nil)
	if l.loaded.Members != 2 || len(l.joined()) != 2 {
		t.Fatalf("%d members were loaded, and %v are there; want 2", l.loaded.Members, l.joined())
	}
	l.source.set(view[0])
	l.synced(l.fleet.Members()[0])
	l.until("the other has left", func() bool { return len(l.joined()) == 1 })
	if n := l.allLists(l.fleet.Members()[0]); n != 0 {
		t.Errorf("%d lists", n)
	}
}
