package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"federator.dev/federator/internal/election"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/seed"
)

// timedHub is a hub that all share, in virtual time.
type timedHub struct {
	tracker clienttesting.ObjectTracker
	version atomic.Int64
	running sync.WaitGroup
}

// timed is a process. Nobody listens where it is said to: its peers are refused, always.
type timed struct {
	*Shards

	id      string
	elector *election.Elector
	lost    atomic.Bool
	writes  atomic.Int64
	stop    func()
}

type always clusterinformers.View

func (a *always) Run(ctx context.Context, set func(clusterinformers.View)) error {
	set(clusterinformers.View(*a))
	<-ctx.Done()
	return nil
}

var errLost = errors.New("the process is lost")

// client returns the hub as a process sees it.
func (h *timedHub) client(p *timed) *fake.Clientset {
	c := &fake.Clientset{}
	object := clienttesting.ObjectReaction(h.tracker)
	c.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if p.lost.Load() {
			return true, nil, errLost
		}
		if with, is := a.(interface{ GetObject() runtime.Object }); is {
			p.writes.Add(1)
			if of, err := meta.Accessor(with.GetObject()); err == nil {
				of.SetResourceVersion(strconv.FormatInt(h.version.Add(1), 10))
			}
		}
		return object(a)
	})
	c.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := h.tracker.Watch(a.GetResource(), a.GetNamespace())
		return true, w, err
	})
	return c
}

func (h *timedHub) start(t *testing.T, n int, members []clusterinformers.Spec) *timed {
	p := &timed{id: fmt.Sprintf("federator-%d", n)}
	log := slog.New(slog.DiscardHandler)
	client := h.client(p)
	p.elector = election.Of(client.CoordinationV1(), "election", p.id, log)
	o, err := Options{
		Hub: &rest.Config{}, Namespace: "federator", ID: p.id, Epoch: aggregate.Block(uint64(n + 1)).First, Address: "127.0.0.1:1",
		Count: 3, Lead: p.elector.Lease, Logger: log,
	}.validate()
	if err != nil {
		t.Fatal(err)
	}
	if p.Shards, err = of(o, client); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	for _, s := range p.Sources([]clusterinformers.Source{&always{Members: members}}) {
		h.running.Go(func() { _ = s.Run(ctx, func(clusterinformers.View) {}) })
	}
	h.running.Go(func() { _ = p.Run(ctx) })
	h.running.Go(func() { _ = p.elector.Run(ctx) })
	return p
}

// TestShards_MembersOfALostProcessAreGivenToOthers within 15 s, whichever process is lost, the leader too, and whenever; and
// processes write to the hub at most once in two seconds.
func TestShards_MembersOfALostProcessAreGivenToOthers(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 7))
	took := map[bool][]time.Duration{}
	most := 0.0
	for range 12 {
		synctest.Test(t, func(t *testing.T) {
			leads, d, rate := lose(t, r)
			took[leads] = append(took[leads], d)
			most = max(most, rate)
		})
	}
	for leads, all := range took {
		slices.Sort(all)
		t.Logf("of %d losses, of the leader %t: %v, %v at most", len(all), leads, all[len(all)/2], all[len(all)-1])
		if all[len(all)-1] > 15*time.Second {
			t.Errorf("the members of a lost process, the leader %t, were given to others after %v", leads, all[len(all)-1])
		}
	}
	t.Logf("%.2f writes a second of one process, at most", most)
	if most > 0.5 {
		t.Errorf("a process writes %.2f times a second", most)
	}
}

// lose loses a process, and returns whether it led, how long its members were its own, and how often one has written.
func lose(t *testing.T, r *rand.Rand) (leads bool, took time.Duration, rate float64) {
	h := &timedHub{tracker: fake.NewClientset().Tracker()}
	var members []clusterinformers.Spec
	for n := range 30 {
		members = append(members, clusterinformers.Spec{Name: fmt.Sprintf("fleet/m%02d", n), UID: fmt.Sprint("uid-", n)})
	}
	var all []*timed
	defer func() {
		for _, p := range all {
			p.stop()
		}
		h.running.Wait()
	}()
	for n := range 3 {
		time.Sleep(time.Duration(r.Int64N(int64(3 * time.Second))))
		all = append(all, h.start(t, n, members))
	}
	time.Sleep(60 * time.Second)
	const while = 70 * time.Second
	before := map[*timed]int64{}
	for _, p := range all {
		before[p] = p.writes.Load()
	}
	time.Sleep(while)
	for _, p := range all {
		rate = max(rate, float64(p.writes.Load()-before[p])/while.Seconds())
	}
	time.Sleep(time.Duration(r.Int64N(int64(8 * time.Second))))
	lost := all[r.IntN(3)]
	leads = lost.elector.Lead() == nil
	if has(lost.current, lost.id) == 0 {
		t.Fatal("it has no members")
	}
	lost.lost.Store(true)
	lost.stop()
	began := time.Now()
	for left := 1; left > 0; {
		time.Sleep(50 * time.Millisecond)
		left = 0
		for _, p := range all {
			if p != lost {
				m, _ := p.Map()
				left += has(m, lost.id)
			}
		}
		if time.Since(began) > time.Minute {
			t.Fatal("it keeps its members")
		}
	}
	return leads, time.Since(began), rate
}

// has returns how many members a process judges by a map.
func has(m *Map, id string) (n int) {
	for i := range m.Members {
		if m.Members[i].Judge == id {
			n++
		}
	}
	return n
}
