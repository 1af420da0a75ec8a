package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"federator.dev/federator/test/hostile"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/seed"
)

const (
	soakNamespace = "soak"
	soakClusters  = 3 // control planes
	soakMembers   = 6 // Clusters that come and go, two for each control plane
	soakTapped    = 3 // more of them, one for each control plane, whose connections are attacked
	soakObjects   = 40
)

// TestSoak has members join and leave, write, break and rotate at random, and connections cut,
// shut down, silenced, throttled and flooded, for SOAK (20 s when unset). Now and then all
// faults are lifted: then the index must be exact, and once all members have left, goroutines
// and heap are what they were.
func TestSoak(t *testing.T) {
	lasts := 20 * time.Second
	if s := os.Getenv("SOAK"); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatalf("SOAK: %v", err)
		}
	} else if testing.Short() {
		t.Skip("takes 20 s")
	}
	s := newSoak(t, seed.Of(t))
	rough := min(max(lasts/5, 3*time.Second), time.Minute) // between two quiet points
	var first, last footprint
	for started, round := time.Now(), 0; round < 3 || time.Since(started) < lasts; round++ {
		if err := s.rough(t.Context(), rough); err != nil {
			t.Fatal(err)
		}
		objects, err := s.quiet(t.Context())
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		last = measure()
		t.Logf("round %d: %d actions, %d writes so far; %d objects exact; with no member left: %d goroutines, %d KiB heap",
			round, s.actions, s.writes.Load(), objects, last.goroutines, last.heap>>10)
		if round == 0 {
			first = last
		}
	}
	t.Logf("%s", s.counts())
	if last.goroutines > first.goroutines+10 {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d after the first round:\n%s", last.goroutines, first.goroutines, buf[:runtime.Stack(buf, true)])
	}
	if last.heap > first.heap+first.heap/4+16<<20 {
		t.Errorf("%d bytes of heap, %d after the first round", last.heap, first.heap)
	}
}

type footprint struct {
	goroutines int
	heap       uint64 // bytes
}

func measure() footprint {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), m.HeapAlloc}
}

// soak is a fleet under random treatment. One goroutine acts; others write.
type soak struct {
	rng      *rand.Rand
	hub      *kube.Hub
	clusters []*kube.ControlPlane
	joined   map[string]bool           // Clusters
	taps     map[string]*hostile.Proxy // between federator and Clusters
	tapped   map[string][]byte         // kubeconfigs that lead to them
	fed      *federator
	actions  int
	done     map[string]int // actions by name
	writes   atomic.Int64
}

func newSoak(t *testing.T, seed uint64) *soak {
	hub, err := shared.hub()
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{rng: rand.New(rand.NewPCG(seed, 0)), hub: hub, joined: map[string]bool{}, taps: map[string]*hostile.Proxy{}, tapped: map[string][]byte{}, done: map[string]int{}}
	for range soakClusters {
		c, err := shared.borrow()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := shared.giveBack(c); err != nil {
				t.Error(err)
			}
		})
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: soakNamespace}}
		if _, err := c.Client().CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		s.clusters = append(s.clusters, c)
	}
	for n := range soakTapped {
		if err := s.tap(t, fmt.Sprintf("m-%d", soakMembers+n)); err != nil {
			t.Fatal(err)
		}
	}
	s.fed, err = startFederator(config{PingInterval: time.Second, PingTimeout: time.Second, LogBytes: 1 << 20}, clusters(hub, soakNamespace, false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.fed.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("what was logged:\n%s", tail(s.fed.log.String(), 100))
		}
	})
	return s
}

// of returns the control plane behind a Cluster.
func (s *soak) of(name string) *kube.ControlPlane {
	var n int
	if _, err := fmt.Sscanf(name, "m-%d", &n); err != nil {
		panic(err) // pick makes the names
	}
	return s.clusters[n%soakClusters]
}

// pick returns one of the Clusters that have joined, or that have not, with a tap where the deed
// needs one.
func (s *soak) pick(d deed) (string, bool) {
	var names []string
	for n := range soakMembers + soakTapped {
		if name := fmt.Sprintf("m-%d", n); s.joined[name] == d.joined && (!d.tapped || s.taps[name] != nil) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return names[s.rng.IntN(len(names))], true
}

// rough treats the fleet roughly for a while.
func (s *soak) rough(ctx context.Context, lasts time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var writing sync.WaitGroup
	for _, c := range s.clusters {
		rng := rand.New(rand.NewPCG(s.rng.Uint64(), 1))
		writing.Go(func() { s.write(ctx, c, rng) })
	}
	defer writing.Wait()
	defer cancel()
	for {
		if err := s.act(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(s.rng.IntN(200)) * time.Millisecond):
		}
	}
}

// deed is something that may happen to a member, or to a Cluster that is none
// yet.
type deed struct {
	name   string
	weight int
	joined bool // of the Cluster that it is done to
	tapped bool // it is done to a Cluster with a tap
	do     func(ctx context.Context, s *soak, name string) error
}

var deeds = []deed{
	{"join", 20, false, false, func(ctx context.Context, s *soak, name string) error {
		s.joined[name] = true
		return s.hub.Register(ctx, kube.Cluster{Namespace: soakNamespace, Name: name, Kubeconfig: s.kubeconfig(name)})
	}},
	{"leave", 8, true, false, func(ctx context.Context, s *soak, name string) error {
		delete(s.joined, name)
		return s.hub.Unregister(ctx, soakNamespace, name)
	}},
	{"rotate", 8, true, false, func(ctx context.Context, s *soak, name string) error { return s.rotate(ctx, name, time.Hour) }},
	{"expire", 4, true, false, func(ctx context.Context, s *soak, name string) error { return s.rotate(ctx, name, -time.Minute) }},
	{"relabel", 5, true, false, func(ctx context.Context, s *soak, name string) error {
		return s.hub.SetLabels(ctx, soakNamespace, name, map[string]string{"n": strconv.Itoa(s.actions)})
	}},
	{"pause", 3, true, false, func(ctx context.Context, s *soak, name string) error {
		return s.hub.SetPaused(ctx, soakNamespace, name, true)
	}},
	{"resume", 4, true, false, func(ctx context.Context, s *soak, name string) error {
		return s.hub.SetPaused(ctx, soakNamespace, name, false)
	}},
	{"reset", 8, true, false, func(_ context.Context, s *soak, name string) error { s.of(name).Proxy.Reset(); return nil }},
	{"cut", 6, true, false, func(_ context.Context, s *soak, name string) error {
		return s.of(name).Proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut})
	}},
	{"blackhole", 4, true, false, func(_ context.Context, s *soak, name string) error {
		return s.of(name).Proxy.Set(tcpproxy.Mode{State: tcpproxy.BlackHole})
	}},
	{"delay", 4, true, false, func(_ context.Context, s *soak, name string) error {
		return s.of(name).Proxy.Set(tcpproxy.Mode{Latency: time.Duration(s.rng.IntN(300)) * time.Millisecond})
	}},
	{"throttle", 3, true, false, func(_ context.Context, s *soak, name string) error {
		return s.of(name).Proxy.Set(tcpproxy.Mode{BytesPerSecond: 20_000 + s.rng.IntN(200_000)})
	}},
	{"lift", 20, true, false, func(_ context.Context, s *soak, name string) error { return s.of(name).Proxy.Set(tcpproxy.Mode{}) }},
	{"attack", 10, true, true, func(_ context.Context, s *soak, name string) error { return s.attack(name) }},
	{"refuse", 4, true, true, func(_ context.Context, s *soak, name string) error {
		s.taps[name].SetAttacks(s.rng.Uint64()|1, refusing)
		return nil
	}},
	{"heal", 10, true, true, func(_ context.Context, s *soak, name string) error { s.heal(name); return nil }},
	{"crash", 1, true, false, func(ctx context.Context, s *soak, name string) error {
		s.of(name).APIServer.Kill()
		return s.of(name).APIServer.Start(ctx)
	}},
}

// act performs one random action.
func (s *soak) act(ctx context.Context) error {
	total := 0
	for _, d := range deeds {
		total += d.weight
	}
	at := s.rng.IntN(total)
	for _, d := range deeds {
		if at -= d.weight; at >= 0 {
			continue
		}
		name, ok := s.pick(d)
		if !ok {
			return nil
		}
		s.actions++
		s.done[d.name]++
		if err := d.do(ctx, s, name); err != nil {
			return fmt.Errorf("%s %s: %w", d.name, name, err)
		}
		return nil
	}
	return nil
}

func (s *soak) rotate(ctx context.Context, name string, ttl time.Duration) error {
	if s.taps[name] != nil { // it asks for no credentials
		return nil
	}
	cred, err := s.of(name).IssueCert("soak", ttl, "system:masters")
	if err != nil {
		return err
	}
	return s.hub.SetKubeconfig(ctx, soakNamespace, name, s.of(name).KubeconfigWith(cred))
}

// write creates, changes and deletes objects of two kinds until ctx is done. An
// API server that is down is a write that fails.
func (s *soak) write(ctx context.Context, c *kube.ControlPlane, rng *rand.Rand) {
	settings, services := c.Client().CoreV1().ConfigMaps(soakNamespace), c.Client().CoreV1().Services(soakNamespace)
	for ctx.Err() == nil {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("o-%d", rng.IntN(soakObjects)), Labels: map[string]string{"n": strconv.Itoa(rng.IntN(5))}}
		service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(rng.Int32N(9000) + 1)}}}}
		var err error
		switch rng.IntN(5) {
		case 0:
			_, err = settings.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
		case 1:
			_, err = settings.Update(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": strconv.Itoa(rng.Int())}}, metav1.UpdateOptions{})
		case 2:
			err = settings.Delete(ctx, meta.Name, metav1.DeleteOptions{})
		case 3:
			_, err = services.Create(ctx, service, metav1.CreateOptions{})
		case 4:
			err = services.Delete(ctx, meta.Name, metav1.DeleteOptions{})
		}
		if err == nil {
			s.writes.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rng.IntN(20)) * time.Millisecond):
		}
	}
}

// quiet lifts all faults, waits until the index is exact, and lets all members
// leave. It returns how many objects were compared.
func (s *soak) quiet(ctx context.Context) (int, error) {
	for _, c := range s.clusters {
		if err := c.Proxy.Set(tcpproxy.Mode{}); err != nil {
			return 0, err
		}
	}
	for name := range s.taps {
		s.heal(name)
	}
	names := slices.Sorted(maps.Keys(s.joined))
	for _, name := range names {
		if err := errors.Join(s.hub.SetPaused(ctx, soakNamespace, name, false), s.rotate(ctx, name, time.Hour)); err != nil {
			return 0, err
		}
	}
	total := 0
	for _, name := range names {
		n, err := s.fed.exact(ctx, 2*patience, soakNamespace+"/"+name, s.of(name))
		if err != nil {
			m, _ := s.fed.member(soakNamespace + "/" + name)
			return 0, fmt.Errorf("%s (%s %s, last error %q): %w", name, m.State, m.Reason, m.LastError, err)
		}
		total += n
	}
	for _, name := range names {
		if err := s.hub.Unregister(ctx, soakNamespace, name); err != nil {
			return 0, err
		}
	}
	clear(s.joined)
	if err := until(ctx, patience, s.empty); err != nil {
		return 0, err
	}
	return total, until(ctx, patience, s.disconnected)
}

// empty reports whether no member is left, nor anything of one.
func (s *soak) empty() error {
	if left := s.fed.manager.Members(); len(left) > 0 {
		return fmt.Errorf("%d members are left", len(left))
	}
	for m := range s.fed.index.Snapshot().Members() {
		return fmt.Errorf("member %s is left in the index", m.Name)
	}
	for scope := range s.fed.index.Snapshot().Scopes("") {
		return fmt.Errorf("scope %s of %s is left in the index", scope.Kind, scope.Member)
	}
	return nil
}

// disconnected reports whether no connection is left.
func (s *soak) disconnected() error {
	for _, c := range s.clusters {
		if open := c.Proxy.Stats().Open; open > 0 {
			return fmt.Errorf("%d connections to %s are left", open, c.Name)
		}
	}
	return nil
}

func (s *soak) counts() string {
	var out string
	for _, name := range slices.Sorted(maps.Keys(s.done)) {
		out += fmt.Sprintf("%s %d, ", name, s.done[name])
	}
	return out + fmt.Sprintf("writes %d", s.writes.Load())
}
