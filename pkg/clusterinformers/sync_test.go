package clusterinformers_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/seed"
	"federator.dev/federator/test/sim"
)

// loud are all built-in kinds but those that are off by default.
func loud() []sim.Kind {
	return slices.DeleteFunc(sim.BuiltinKinds(), func(k sim.Kind) bool { return k.Kind == "Event" || k.Kind == "Lease" })
}

func TestInformer_SyncsAllKinds(t *testing.T) {
	for _, tt := range []struct{ version, encoding string }{
		{"v1.36.3", "protobuf"},
		{"v1.99.0", "json"}, // newer than the types that we decode by
	} {
		t.Run(tt.encoding, func(t *testing.T) {
			r := follow(t, sim.Options{Members: 1, Version: tt.version}, func(r *rig, _ *clusterinformers.Options) {
				fill(t, r.fleet.Members()[0], 30)
			})
			m := r.fleet.Members()[0]
			r.exact(m, loud())
			st := r.status(m)
			if st.Version != tt.version || st.Scopes[aggregate.Synced] != len(loud()) {
				t.Errorf("version %s, scopes %v; want %s and %d Synced", st.Version, st.Scopes, tt.version, len(loud()))
			}
			for _, d := range st.Details {
				if d.Encoding != tt.encoding || d.Relists["initial"] != 1 || d.Fallbacks != 0 {
					t.Errorf("%s: %s, relists %v, fallbacks %d", d.Kind, d.Encoding, d.Relists, d.Fallbacks)
				}
			}
			for _, kind := range []aggregate.Kind{"Event", "Event.events.k8s.io", "Lease.coordination.k8s.io"} {
				if _, there := r.index.Snapshot().Scope(nameOf(m), kind); there {
					t.Errorf("%s is followed though it is off by default", kind)
				}
			}
		})
	}
}

// churn makes n random writes.
func churn(t *testing.T, m *sim.Member, rng *rand.Rand, n int) {
	t.Helper()
	for range n {
		i := rng.IntN(60)
		p, c := pod(i), configMap(i)
		_, podErr := m.Get(pods, p.Namespace, p.Name)
		_, cmErr := m.Get(configMaps, c.Namespace, c.Name)
		switch rng.IntN(6) {
		case 0, 1:
			if podErr != nil {
				ok(t, m.Create(p))
			} else {
				touch(t, m, i, fmt.Sprint(rng.IntN(1000)))
			}
		case 2:
			if podErr == nil {
				ok(t, m.Delete(pods, p.Namespace, p.Name))
			}
		case 3: // another object under the name at once
			if podErr == nil {
				ok(t, m.Delete(pods, p.Namespace, p.Name))
			}
			ok(t, m.Create(p))
		case 4:
			if cmErr != nil {
				ok(t, m.Create(c))
			} else {
				ok(t, m.Patch(configMaps, c.Namespace, c.Name, fmt.Appendf(nil, `{"data":{"k%d":"<&>é\"\\%d"}}`, rng.IntN(3), rng.IntN(9))))
			}
		default:
			if cmErr == nil {
				ok(t, m.Delete(configMaps, c.Namespace, c.Name))
			}
		}
	}
}

func TestInformer_FollowsRandomWritesExactly(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 1))
	opts := fewKinds()
	r := follow(t, opts, nil)
	m := r.fleet.Members()[0]
	lists := r.allLists(m)
	for range 5 {
		churn(t, m, rng, 300)
		r.exact(m, opts.Kinds)
	}
	if n := r.allLists(m); n != lists {
		t.Errorf("%d lists, want the first %d only", n, lists)
	}
}

func TestWatch_BrokenResumesWithoutAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 1))
	for _, tt := range []struct {
		name   string
		broken func(*sim.Member) // ends or spoils the watches
		fix    func(*sim.Member) error
	}{
		{"dropped", func(m *sim.Member) { m.DropWatches() }, nil},
		{"cut", func(m *sim.Member) { m.Cut() }, (*sim.Member).Restore},
		{"reset", func(m *sim.Member) { fault(m, sim.Fault{Reset: true, Times: 4}) }, nil},
		{"truncated", func(m *sim.Member) { fault(m, sim.Fault{Truncate: 700, Times: 6}) }, nil},
		{"garbage", func(m *sim.Member) { fault(m, sim.Fault{Garbage: true, Times: 4}) }, nil},
		{"huge", func(m *sim.Member) { fault(m, sim.Fault{Huge: 1 << 20, Times: 4}) }, nil},
		{"429", func(m *sim.Member) { fault(m, sim.Fault{Status: 429, RetryAfter: 1, Times: 6}) }, nil},
		{"500", func(m *sim.Member) { fault(m, sim.Fault{Status: 500, Times: 6}) }, nil},
		{"503", func(m *sim.Member) { fault(m, sim.Fault{Status: 503, RetryAfter: 1, Times: 6}) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := fewKinds()
			r := follow(t, opts, func(r *rig, _ *clusterinformers.Options) { fill(t, r.fleet.Members()[0], 20) })
			m := r.fleet.Members()[0]
			lists, watches := r.allLists(m), m.Requests().Verb("watch")
			tt.broken(m)
			churn(t, m, rng, 200)
			if tt.fix != nil {
				r.until("the scopes are stale", func() bool { return r.all(m, aggregate.Stale) })
				if got := len(r.held(m, "Pod")); got == 0 {
					t.Error("a member out of reach has lost its objects")
				}
				ok(t, tt.fix(m))
			}
			r.until("a watch was opened again", func() bool { return m.Requests().Verb("watch") > watches })
			r.synced(m)
			r.exact(m, opts.Kinds)
			if n := r.allLists(m); n != lists {
				t.Errorf("%d lists, want the first %d only: %v", n, lists, m.Requests().All())
			}
			if d := r.detail(m, "Pod"); d.Restarts == 0 || len(d.Relists) != 1 {
				t.Errorf("restarts %d, relists %v", d.Restarts, d.Relists)
			}
		})
	}
}

// fault spoils the next watches, and ends those that run.
func fault(m *sim.Member, f sim.Fault) {
	f.Verb = "watch"
	m.Faults().Add(f)
	m.DropWatches()
}
