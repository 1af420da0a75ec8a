package shards_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/shards"
)

// settled returns why the members of these processes are not settled yet: each has one judge, which has read it, and where
// there are two copies a standby, and the processes agree.
func settled(replication int, all ...*process) error {
	m, _ := all[0].Map()
	if m == nil {
		return errors.New("there is no map")
	}
	if len(m.Processes) != len(all) || len(m.Keys.Before) > 0 || len(m.Keys.Now) != len(all) {
		return fmt.Errorf("the map has %d processes, keys %+v", len(m.Processes), m.Keys)
	}
	roles := map[string]map[string]aggregate.Role{}
	for _, p := range all {
		if other, _ := p.Map(); other == nil || other.Version != m.Version {
			return fmt.Errorf("%s has another map", p.id)
		}
		if len(p.Peers()) != len(all)-1 {
			return fmt.Errorf("%s has %d peers", p.id, len(p.Peers()))
		}
		roles[p.id] = p.roles()
	}
	specs := all[0].w.specs()
	if len(m.Members) != len(specs) {
		return fmt.Errorf("the map has %d members", len(m.Members))
	}
	held := map[string]int{}
	for _, e := range m.Members {
		want := map[string]aggregate.Role{e.Judge: aggregate.Judge}
		if e.Standby != "" {
			want[e.Standby] = aggregate.Standby
		}
		if e.Unready || e.Next != "" || len(want) != min(replication, len(all)) {
			return fmt.Errorf("%+v", e)
		}
		for id, of := range roles {
			role, holds := of[e.Name]
			if is, should := want[id]; holds != should || role != is {
				return fmt.Errorf("%s: %s has it as %d: %t, want %d: %t", e.Name, id, role, holds, is, should)
			}
		}
		held[e.Judge]++
	}
	for _, p := range all {
		for name, role := range roles[p.id] {
			if role == aggregate.Judge && !p.ready(name) {
				return fmt.Errorf("%s has not read %s", p.id, name)
			}
		}
		if most := 1 + len(specs)/len(all); held[p.id] > most {
			return fmt.Errorf("%s judges %d members", p.id, held[p.id])
		}
	}
	return nil
}

// TestShards_ReleaseALeaseThatHasMoved: a renewal whose response the end of a process has cut off, or anybody's label, does not
// keep it from being released.
func TestShards_ReleaseALeaseThatHasMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "release", 1)
	a := w.start("a", 1000, func(o *shards.Options) { o.Renew, o.Expire = time.Hour, 2*time.Hour })
	leases := w.client.CoordinationV1().Leases(w.namespace)
	until(t, func() error {
		_, err := leases.Get(t.Context(), shards.LeasePrefix+"a", metav1.GetOptions{})
		return err
	})
	_, err := leases.Patch(t.Context(), shards.LeasePrefix+"a", types.MergePatchType, []byte(`{"metadata":{"labels":{"somebody":"was-here"}}}`), metav1.PatchOptions{})
	must(t, err)
	a.stop()
	l, err := leases.Get(t.Context(), shards.LeasePrefix+"a", metav1.GetOptions{})
	must(t, err)
	if *l.Spec.HolderIdentity != "" || l.Labels["somebody"] == "" {
		t.Errorf("the Lease is not released: %+v", l)
	}
}

// writes counts what a process has written to the hub since a time.
func (w *world) writes(id string, since time.Time) (n int) {
	w.t.Helper()
	events, err := w.hub.Audit()
	must(w.t, err)
	for _, e := range events {
		if e.UserAgent == "federator "+w.namespace+" "+id && e.Received.After(since) {
			n++
		}
	}
	return n
}

// TestShards_ShareAFleet: three processes share six members; one is killed, and the others have its members; it comes back; one
// ends in order, and its members are with others at once. Each writes little to the hub.
func TestShards_ShareAFleet(t *testing.T) {
	for _, replication := range []int{1, 2} {
		t.Run(fmt.Sprint(replication), func(t *testing.T) {
			t.Parallel()
			shareAFleet(t, newWorld(t, fmt.Sprintf("share-%d", replication), 6), replication)
		})
	}
}

func shareAFleet(t *testing.T, w *world, replication int) {
	began := time.Now()
	of := func(o *shards.Options) { o.Replication, o.Count = replication, 3 }
	w.lead("b")
	a, b, c := w.start("a", 1000, of), w.start("b", 2000, of), w.start("c", 3000, of)
	until(t, func() error { return settled(replication, a, b, c) })

	// Each knows where all members are.
	for _, p := range []*process{a, b, c} {
		f := p.fleet.Load()
		if !f.Known || len(f.Members) != 6 {
			t.Fatalf("%s is told of %d members, known %t", p.id, len(f.Members), f.Known)
		}
		for _, m := range f.Members {
			peer, self, ok := p.Judge(m.Name)
			if !ok || m.Judge == "" || self != (m.Judge == p.id) || !self && peer.ID != m.Judge {
				t.Errorf("%s: %s is judged by %q, or by %q", p.id, m.Name, m.Judge, peer.ID)
			}
		}
	}
	if owner := a.KeyOwner(); owner.Self != "a" || !slices.Equal(owner.Now, []string{"a", "b", "c"}) {
		t.Errorf("%+v", owner)
	}

	var lost []string
	for name, role := range c.roles() {
		if role == aggregate.Judge {
			lost = append(lost, name)
		}
	}
	c.kill()
	if replication == 2 { // nobody waits for a list
		until(t, func() error {
			for _, name := range lost {
				for _, p := range []*process{a, b} {
					if _, self, ok := p.Judge(name); ok && self && !p.ready(name) {
						t.Fatalf("%s takes over %s, and has not read it", p.id, name)
					}
				}
			}
			if m, _ := a.Map(); len(m.Processes) != 2 {
				return errors.New("the killed process is still there")
			}
			return nil
		})
	}
	until(t, func() error { return settled(replication, a, b) })

	c = w.start("c", 4000, of)
	until(t, func() error { return settled(replication, a, b, c) })
	if peers := a.Peers(); peers[1].ID != "c" || peers[1].Epoch != c.index.First() {
		t.Errorf("%+v", peers)
	}

	at := time.Now()
	b.stop() // which leads
	w.lead("c")
	until(t, func() error { return settled(replication, a, c) })
	if l, err := w.client.CoordinationV1().Leases(w.namespace).Get(t.Context(), shards.LeasePrefix+"b", metav1.GetOptions{}); err != nil || *l.Spec.HolderIdentity != "" {
		t.Errorf("the Lease is not released: %v", err)
	}
	t.Logf("settled %s after a process ended in order", time.Since(at).Round(time.Millisecond))

	for _, p := range []*process{a, c} {
		n, most := w.writes(p.id, began), 2.5*float64(time.Since(began))/float64(renew) // 0.5/s, if a Lease were renewed every 5 s
		t.Logf("%s has written %d times in %s", p.id, n, time.Since(began).Round(time.Millisecond))
		if float64(n) > most {
			t.Errorf("more than %.0f", most)
		}
	}
	if st := c.Status(); st.Version == 0 || st.Processes != 2 || st.Judges+st.Standbys != 3*replication || st.Unjudged > 0 || !st.Leads || st.LeaseAge < 0 || st.LeaseAge > expire || st.Problem != nil {
		t.Errorf("%+v", st)
	}
	if n, err := testutil.GatherAndCount(a.metrics, "federator_shard_members", "federator_shard_map_version", "federator_shard_lease_age_seconds"); err != nil || n != 5 {
		t.Errorf("%d metrics: %v", n, err)
	}
}

// TestShards_TheIDIsTaken: of two processes of one ID the one that started later goes on.
func TestShards_TheIDIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "taken", 1)
	w.lead("a")
	first := w.start("a", 1000, nil)
	until(t, func() error { return settled(1, first) })
	second := w.start("a", 2000, nil)
	select {
	case err := <-first.ended:
		if !errors.Is(err, shards.ErrTaken) || !strings.Contains(err.Error(), fmt.Sprint("epoch ", uint64(second.index.First()))) {
			t.Errorf("the first one ends with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("both go on")
	}
	until(t, func() error { return settled(1, second) })
}

// TestShards_WithoutTheHub: who does not see the hub keeps what it has, and so do all when nobody does; a map that was deleted
// is written again, with a greater version.
func TestShards_WithoutTheHub(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "away", 4)
	w.lead("a")
	of := func(o *shards.Options) { o.Count = 2 }
	a, b := w.start("a", 1000, of), w.start("b", 2000, of)
	until(t, func() error { return settled(1, a, b) })
	before, changed := a.Map()
	roles := maps.Clone(b.roles())
	a.cut.Store(true)
	b.cut.Store(true)
	select {
	case <-changed:
		t.Error("there is another map")
	case <-time.After(expire + 2*renew):
	}
	if !maps.Equal(b.roles(), roles) || len(a.Peers()) != 1 || len(b.Peers()) != 1 {
		t.Errorf("%v, before %v; %d peers", b.roles(), roles, len(a.Peers()))
	}
	a.cut.Store(false)
	select { // it waits for the other to come back, too
	case <-changed:
		t.Error("there is another map")
	case <-time.After(2 * renew):
	}
	b.cut.Store(false)
	select {
	case <-changed:
		t.Error("there is another map")
	case <-time.After(expire + 2*renew):
	}
	until(t, func() error { return settled(1, a, b) })

	before, _ = a.Map()
	must(t, w.client.CoreV1().ConfigMaps(w.namespace).Delete(t.Context(), shards.DefaultConfigMap, metav1.DeleteOptions{}))
	until(t, func() error {
		now, _ := b.Map()
		if now.Version <= before.Version {
			return errors.New("the map is not there again")
		}
		for i, e := range now.Members {
			if e.Judge != before.Members[i].Judge {
				t.Fatalf("%+v, before %+v", now.Members, before.Members)
			}
		}
		if !slices.Equal(now.Members, before.Members) { // those who judge must say again that they are ready
			return fmt.Errorf("%+v, before %+v", now.Members, before.Members)
		}
		return nil
	})
}

// TestShards_MapThatIsNotUnderstood: nobody writes over it, and members stay where they are.
func TestShards_MapThatIsNotUnderstood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "malformed", 2)
	w.lead("a")
	a := w.start("a", 1000, nil)
	until(t, func() error { return settled(1, a) })
	before, _ := a.Map()
	configMaps := w.client.CoreV1().ConfigMaps(w.namespace)
	until(t, func() error {
		c, err := configMaps.Get(t.Context(), shards.DefaultConfigMap, metav1.GetOptions{})
		must(t, err)
		c.BinaryData = map[string][]byte{"map.json.gz": []byte("nonsense")}
		_, err = configMaps.Update(t.Context(), c, metav1.UpdateOptions{})
		return err
	})
	until(t, func() error {
		if st := a.Status(); st.Problem == nil || !strings.Contains(st.Problem.Error(), "ConfigMap "+w.namespace+"/"+shards.DefaultConfigMap+": binaryData[map.json.gz]: it is not gzip") {
			return fmt.Errorf("the problem is another one: %w", st.Problem)
		}
		return nil
	})
	b := w.start("b", 2000, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 4*renew)
	defer cancel()
	<-ctx.Done()
	if now, _ := a.Map(); now != before || len(a.roles()) != 2 {
		t.Errorf("%+v, %v", now, a.roles())
	}
	if m, _ := b.Map(); m != nil || len(b.roles()) > 0 {
		t.Errorf("who has never seen a map takes %v", b.roles())
	}
	must(t, configMaps.Delete(t.Context(), shards.DefaultConfigMap, metav1.DeleteOptions{}))
	until(t, func() error { return settled(1, a, b) })
}

// TestShards_Options: what a process is told by its options is in the map, under the names that they give.
func TestShards_Options(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "options", 4)
	w.lead("a")
	var applied atomic.Int64
	applied.Store(1 << 40)
	of := func(o *shards.Options) {
		o.Count, o.ConfigMap, o.Secret = 2, "own-map", "own-ca"
		o.Policies = func() string { return "sha256:" + o.ID }
		o.Applied = applied.Load
	}
	a, b := w.start("a", 1000, of), w.start("b", 2000, of)
	for _, p := range []*process{a, b} {
		for i, spec := range w.specs() {
			p.loads.Store(spec.Name, shards.Load{Bytes: map[bool]float64{true: 5 << 30, false: 1 << 20}[i < 2], Deltas: 1, CPU: .001})
		}
	}
	until(t, func() error {
		m, _ := a.Map()
		if m == nil || len(m.Processes) != 2 || m.Processes[0].Policies != "sha256:a" || m.Processes[1].Policies != "sha256:b" || len(m.Members) != 4 {
			return fmt.Errorf("%+v", m)
		}
		if m.Members[0].Judge == m.Members[1].Judge {
			return fmt.Errorf("one process has all the load: %+v", m.Members)
		}
		return nil
	})
	if _, err := w.client.CoreV1().ConfigMaps(w.namespace).Get(t.Context(), "own-map", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := w.client.CoreV1().Secrets(w.namespace).Get(t.Context(), "own-ca", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	// The keys of before are kept until all have applied the map that has others.
	applied.Store(1)
	w.start("c", 3000, of)
	until(t, func() error {
		if o := b.KeyOwner(); !slices.Equal(o.Before, []string{"a", "b"}) || !slices.Equal(o.Now, []string{"a", "b", "c"}) {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	_, changed := b.Map()
	select {
	case <-changed: // a move
	case <-time.After(3 * renew):
	}
	if o := b.KeyOwner(); len(o.Before) != 2 {
		t.Errorf("%+v", o)
	}
	applied.Store(1 << 40)
	until(t, func() error {
		if o := b.KeyOwner(); len(o.Before) > 0 {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
}

// TestNew_RefusesWhatIsWrong: each option that is wrong is named.
func TestNew_RefusesWhatIsWrong(t *testing.T) {
	good := shards.Options{
		Hub: &rest.Config{Host: "https://127.0.0.1:1"}, Namespace: "federator", ID: "a", Epoch: 1, Address: "a:1",
		Lead: func() (time.Time, error) { return time.Time{}, nil }, Logger: slog.New(slog.DiscardHandler),
	}
	if _, err := shards.New(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*shards.Options){
		"Hub":         func(o *shards.Options) { o.Hub = nil },
		"Lead":        func(o *shards.Options) { o.Lead = nil },
		"Epoch":       func(o *shards.Options) { o.Epoch = 0 },
		"ID":          func(o *shards.Options) { o.ID = "Not A Label" },
		"Address":     func(o *shards.Options) { o.Address = "a" },
		"Replication": func(o *shards.Options) { o.Replication = 3 },
		"Count":       func(o *shards.Options) { o.Count = -1 },
		"Expire":      func(o *shards.Options) { o.Renew, o.Expire = time.Second, time.Second },
		"negative":    func(o *shards.Options) { o.Renew = -1 },
	} {
		o := good
		change(&o)
		if _, err := shards.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
