package clusterinformers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/handover"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/sim"
)

// beside makes another process, with a disk of its own, which follows the same fleet and takes over what this one holds. It does not
// run yet.
func (l *lives) beside(after func()) *lives {
	t := l.t
	t.Helper()
	giver, err := handover.NewGiver(handover.GiverOptions{
		Index: l.index, Form: l.manager.Form, Proved: l.manager.Proved, Peer: func(*http.Request) string { return "other" }, Logger: slog.New(l.log),
	})
	ok(t, err)
	server := httptest.NewUnstartedServer(giver)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	taker, err := handover.NewTaker(handover.TakerOptions{
		Holders: func(string) []handover.Holder {
			return []handover.Holder{{ID: "a", URL: server.URL, Client: server.Client()}}
		}, Logger: slog.New(l.log),
	})
	ok(t, err)
	r := *l.rig
	r.ownLists, r.source = map[string]int{}, newFixed(l.source.view...)
	b := &lives{rig: &r, dir: t.TempDir(), block: 100, opts: l.opts}
	b.opts.Sources = []clusterinformers.Source{r.source}
	b.opts.TakeOver = func(ctx context.Context, to clusterinformers.TakeOver) map[aggregate.Kind]time.Time {
		if b.loaded.Members > 0 {
			t.Errorf("member %s is on disk, and another process is asked for it", to.Member)
		}
		got := taker.Take(ctx, handover.Wish{
			Index: b.index, Member: to.Member, UID: to.UID, Form: b.manager.Form, Wanted: to.Wanted, MaxObjects: to.MaxObjects, MaxBytes: to.MaxBytes,
		})
		if after != nil {
			after()
		}
		return got
	}
	for _, m := range l.fleet.Members() {
		m.Requests().Reset()
	}
	return b
}

// TestManager_TakesOver what another process holds, without a list, and goes on with it; so does the next process from its disk. The
// disk of the one before has nothing of it once it has let go.
func TestManager_TakesOver(t *testing.T) {
	fleet := fewKinds()
	a := newLives(t, fleet, populate)
	m := a.fleet.Members()[0]
	alter(t, m, 1)
	a.exact(m, fleet.Kinds)
	b := a.beside(nil)
	b.begin(nil)
	b.synced(m)
	alter(t, m, 2)
	b.exact(m, fleet.Kinds)
	if n := b.allLists(m); n != 0 {
		t.Errorf("%d lists: %v", n, m.Requests().All())
	}
	a.source.set()
	entries := func(dir string) (names []string, err error) {
		list, err := os.ReadDir(filepath.Join(dir, "members"))
		for _, e := range list {
			names = append(names, e.Name())
		}
		return names, err
	}
	ok(t, kube.Until(t.Context(), patience, func() error {
		names, err := entries(a.dir)
		if err == nil && len(names) > 0 {
			err = fmt.Errorf("the disk of the process before has %v", names)
		}
		return err
	}))
	if names, err := entries(b.dir); err != nil || len(names) != 1 {
		t.Fatalf("the disk of the next process has %v: %v", names, err)
	}
	b.restart(func() { alter(t, m, 3) }, nil)
	b.synced(m)
	b.exact(m, fleet.Kinds)
	if n := b.allLists(m); n != 0 || b.loaded.Members != 1 {
		t.Errorf("%d lists after a restart, with %+v: %v", n, b.loaded, m.Requests().All())
	}
}

// TestManager_TakesOverWhatIsProved: what the other process knows to be what the member has is not audited first.
func TestManager_TakesOverWhatIsProved(t *testing.T) {
	a := newLives(t, fewKinds(), populate)
	m := a.fleet.Members()[0]
	b := a.beside(nil)
	b.begin(func(o *clusterinformers.Options) {
		o.Audit = clusterinformers.Audit{Interval: time.Hour, FirstTier: time.Hour}
	})
	b.synced(m)
	if err := b.manager.CheckContact(nameOf(m)); errors.Is(err, clusterinformers.ErrUnaudited) {
		t.Error(err)
	}
	for _, kind := range []aggregate.Kind{"Pod", "Secret", "Namespace"} {
		was, is := a.manager.Proved(nameOf(m), kind), b.manager.Proved(nameOf(m), kind)
		if d := is.Sub(was); was.IsZero() || is.IsZero() || d < -time.Second || d > time.Second {
			t.Errorf("%s was proved at %s, now at %s", kind, was, is)
		}
	}
	if n := b.allLists(m); n != 0 {
		t.Errorf("%d lists: %v", n, m.Requests().All())
	}
}

// TestManager_ListsWhatIsTooOldToTakeOver, and nothing else.
func TestManager_ListsWhatIsTooOldToTakeOver(t *testing.T) {
	fleet := fewKinds()
	a := newLives(t, fleet, populate)
	m := a.fleet.Members()[0]
	a.exact(m, fleet.Kinds)
	b := a.beside(func() { touch(t, m, 1, "x"); m.Compact(pods) })
	b.begin(nil)
	b.until("Pods are listed", func() bool { return b.lists(m, pods) > 0 }) // a watch is answered before it says that it has expired
	b.synced(m)
	b.exact(m, fleet.Kinds)
	if got := listedKinds(b, m); !slices.Equal(got, []string{"Pod"}) {
		t.Errorf("%v were listed, want Pods: %v", got, m.Requests().All())
	}
}

// listedKinds are the kinds that the process has listed at a member.
func listedKinds(l *lives, m *sim.Member) (out []string) {
	for _, k := range fewKinds().Kinds {
		if l.lists(m, k.GroupResource()) > 0 {
			out = append(out, k.Kind)
		}
	}
	slices.Sort(out)
	return out
}

// TestManager_TakesOverOrLists says how long a member takes either way, and what it costs its server.
func TestManager_TakesOverOrLists(t *testing.T) {
	a := newLives(t, fewKinds(), func(r *rig) { fill(t, r.fleet.Members()[0], 4000) })
	m := a.fleet.Members()[0]
	for _, lists := range []bool{true, false} {
		b := a.beside(nil)
		began := time.Now()
		b.begin(func(o *clusterinformers.Options) {
			if lists {
				o.TakeOver = nil
			}
		})
		b.synced(m)
		took, n := time.Since(began), b.allLists(m)
		objects, _ := b.index.Snapshot().Size()
		t.Logf("lists %t: %d objects after %s, with %d lists", lists, objects, took.Round(time.Millisecond), n)
		if (n > 0) != lists {
			t.Errorf("lists %t: %d lists", lists, n)
		}
		b.stop()
	}
}
