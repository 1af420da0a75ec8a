package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/sim"
)

const (
	isolationMembers = 10
	isolationObjects = 50                    // of each member
	isolationPause   = 10 * time.Millisecond // between two writes to a member
	isolationWindow  = 3 * time.Second       // of one run
	isolationPairs   = 2                     // make bench compares more: scale/isolation
	sequence         = "e2e.test/sequence"   // label that counts the writes to a member
)

// fixed is a source whose members are always the same.
type fixed []clusterinformers.Spec

func (f fixed) Run(ctx context.Context, set func(clusterinformers.View)) error {
	set(clusterinformers.View{Members: f})
	<-ctx.Done()
	return nil
}

// simFleet is ten simulated members, each behind a proxy, and a federator that watches them.
type simFleet struct {
	members []*sim.Member
	proxies []*tcpproxy.Proxy
	fed     *federator

	mu      sync.Mutex
	written map[string]time.Time // when a write began, by member and sequence
	took    []time.Duration      // from there to its visibility, of healthy members
	next    int                  // sequence
}

var configMaps = schema.GroupResource{Resource: "configmaps"}

func newSimFleet(t *testing.T) *simFleet {
	servers, err := sim.New(sim.Options{Members: isolationMembers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	f := &simFleet{members: servers.Members(), written: map[string]time.Time{}}
	var specs fixed
	for i, m := range f.members {
		for n := range isolationObjects {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "object-" + strconv.Itoa(n)}}
			if err := m.Create(object); err != nil {
				t.Fatal(err)
			}
		}
		p, err := tcpproxy.Listen(t.Context(), "127.0.0.1:0", m.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		f.proxies = append(f.proxies, p)
		specs = append(specs, clusterinformers.Spec{Name: fmt.Sprintf("sim/member-%d", i), UID: strconv.Itoa(i), Kubeconfig: through(t, m, p)})
	}
	f.fed, err = startFederator(config{
		Kinds:        []clusterinformers.KindRule{{Kind: "ConfigMap"}, {Kind: "Pod"}, {Kind: "Namespace"}},
		PingInterval: time.Second, PingTimeout: time.Second, // so that a short run sees the black hole found
	}, func(*slog.Logger) ([]clusterinformers.Source, error) { return []clusterinformers.Source{specs}, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.fed.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("what was logged:\n%s", tail(f.fed.log.String(), 60))
		}
	})
	return f
}

// through returns the member's kubeconfig, leading through the proxy.
func through(t *testing.T, m *sim.Member, p *tcpproxy.Proxy) []byte {
	raw, err := m.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cfg.Clusters {
		c.Server = "https://" + p.Addr()
	}
	raw, err = clientcmd.Write(*cfg)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func (f *simFleet) synced() error {
	for _, m := range f.fed.manager.Members() {
		if m.State != connection.Connected || m.Scopes[aggregate.Synced] != 3 {
			return fmt.Errorf("%s is %s %s, scopes %v", m.Name, m.State, m.Reason, m.Scopes)
		}
	}
	return nil
}

// healthy reports whether a member is one of those whose latency counts. The
// others are black-holed or slow in half of the runs.
func healthy(i int) bool { return i >= 2 }

// run writes to all members for a while, and returns the latencies of the
// healthy ones: from the beginning of a write to its visibility in a snapshot.
func (f *simFleet) run(ctx context.Context, window time.Duration) []time.Duration {
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	f.mu.Lock()
	f.took = nil
	f.mu.Unlock()
	var wg sync.WaitGroup
	for i := range f.members {
		wg.Go(func() { f.write(ctx, i) })
	}
	wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.took)
}

// write changes one object after another until ctx is done.
func (f *simFleet) write(ctx context.Context, i int) {
	tick := time.NewTicker(isolationPause)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f.mu.Lock()
		f.next++
		seq := strconv.Itoa(f.next)
		f.written[seq] = time.Now()
		f.mu.Unlock()
		err := f.members[i].Modify(configMaps, "default", "object-"+strconv.Itoa(n%isolationObjects), func(o sim.Object) {
			o.SetLabels(map[string]string{sequence: seq})
		})
		if err != nil {
			panic(err) // the member is in this process: it does not fail
		}
	}
}

// follow notes when writes become visible, until ctx is done.
func (f *simFleet) follow(ctx context.Context) {
	counts := map[string]bool{}
	for i := range f.members {
		counts[fmt.Sprintf("sim/member-%d", i)] = healthy(i)
	}
	cursor := f.fed.index.Cursor(f.fed.index.Snapshot())
	for {
		batch, err := cursor.Next(ctx)
		if err != nil {
			return
		}
		now := time.Now()
		f.mu.Lock()
		for d := range batch.Deltas() {
			if d.After.IsZero() {
				continue
			}
			seq, _ := d.After.Label(sequence)
			if at, ok := f.written[seq]; ok {
				delete(f.written, seq)
				if counts[d.Ref.Member] {
					f.took = append(f.took, now.Sub(at))
				}
			}
		}
		f.mu.Unlock()
	}
}

// caughtUp reports whether the index has the newest version of every object of
// these members.
func (f *simFleet) caughtUp(which func(i int) bool) error {
	snapshot := f.fed.index.Snapshot()
	var errs []error
	for i, m := range f.members {
		if !which(i) {
			continue
		}
		for n := range isolationObjects {
			name := "object-" + strconv.Itoa(n)
			want, err := m.Get(configMaps, "default", name)
			if err != nil {
				return err
			}
			got, ok := snapshot.Get(aggregate.Ref{Member: fmt.Sprintf("sim/member-%d", i), Kind: "ConfigMap", Namespace: "default", Name: name})
			if !ok || got.ResourceVersion() != want.GetResourceVersion() {
				errs = append(errs, fmt.Errorf("member-%d: %s is behind", i, name))
			}
		}
	}
	return errors.Join(errs...)
}

// TestIsolation shows that of ten members a black-holed one and one that is a
// hundred times slower cost the other eight nothing: their latency is compared
// in interleaved runs with and without the faults, and printed. What holds
// regardless of time, that the eight keep receiving and the two catch up
// without listing again, is checked.
func TestIsolation(t *testing.T) {
	f := newSimFleet(t)
	if err := until(t.Context(), patience, f.synced); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { f.follow(ctx) })
	defer following.Wait()
	defer cancel()

	pairs := isolationPairs
	if testing.Short() {
		pairs = 1
	}
	f.run(ctx, time.Second) // to warm up
	var p50s, p99s []float64
	for pair := range pairs {
		without := f.run(ctx, isolationWindow)
		f.fault(t, tcpproxy.Mode{State: tcpproxy.BlackHole}, tcpproxy.Mode{Latency: 50 * time.Millisecond, BytesPerSecond: 20_000})
		with := f.run(ctx, isolationWindow)
		if len(with) == 0 || len(without) == 0 {
			t.Fatalf("nothing arrived: %d events with faults, %d without", len(with), len(without))
		}
		if err := until(ctx, patience, func() error { return f.caughtUp(healthy) }); err != nil {
			t.Fatalf("beside faults of others: %v", err)
		}
		if err := until(ctx, patience, f.stale); err != nil {
			t.Fatal(err)
		}
		f.fault(t, tcpproxy.Mode{}, tcpproxy.Mode{})
		if err := until(ctx, patience, func() error {
			return errors.Join(f.synced(), f.caughtUp(func(int) bool { return true }))
		}); err != nil {
			t.Fatalf("after the faults: %v", err)
		}
		a, b := quantile(with, 0.5)/quantile(without, 0.5), quantile(with, 0.99)/quantile(without, 0.99)
		p50s, p99s = append(p50s, a), append(p99s, b)
		t.Logf("run %d: p50 %.3f ms with faults, %.3f without (%.2fx); p99 %.3f ms, %.3f (%.2fx); %d and %d events", pair+1,
			quantile(with, 0.5), quantile(without, 0.5), a, quantile(with, 0.99), quantile(without, 0.99), b, len(with), len(without))
	}
	slices.Sort(p50s)
	slices.Sort(p99s)
	t.Logf("median of %d runs: p50 %.2fx (goal 1.1x), p99 %.2fx (goal 1.5x)", pairs, p50s[pairs/2], p99s[pairs/2])
	for _, m := range f.fed.manager.Members() {
		for _, d := range m.Details {
			if len(d.Relists) != 1 || d.Relists["initial"] != 1 {
				t.Errorf("%s %s was listed again: %v", m.Name, d.Kind, d.Relists)
			}
		}
	}
}

func (f *simFleet) fault(t *testing.T, first, second tcpproxy.Mode) {
	if err := errors.Join(f.proxies[0].Set(first), f.proxies[1].Set(second)); err != nil {
		t.Fatal(err)
	}
}

// stale reports whether the black hole has been found.
func (f *simFleet) stale() error {
	scope, _ := f.fed.index.Snapshot().Scope("sim/member-0", "ConfigMap")
	if scope.Status.State != aggregate.Stale {
		return fmt.Errorf("the black-holed member's scope is %s", scope.Status.State)
	}
	return nil
}

// quantile returns a quantile in milliseconds.
func quantile(d []time.Duration, q float64) float64 {
	slices.Sort(d)
	return float64(d[min(int(q*float64(len(d))), len(d)-1)]) / float64(time.Millisecond)
}
