package hostile

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/seed"
	"federator.dev/federator/test/sim"
)

// framesRig follows an honest member, and many whose connections are attacked, one by each
// class. All of these are one simulated server behind proxies.
type framesRig struct {
	t              *testing.T
	index          *aggregate.Index
	manager        *clusterinformers.Manager
	honest, server *sim.Member
	client         kubernetes.Interface // of the server behind the proxies

	mu    sync.Mutex
	specs []clusterinformers.Spec
	wake  trigger.Trigger
}

// Run implements clusterinformers.Source.
func (r *framesRig) Run(ctx context.Context, set func(clusterinformers.View)) error {
	for {
		r.mu.Lock()
		specs := slices.Clone(r.specs)
		r.mu.Unlock()
		set(clusterinformers.View{Members: specs})
		select {
		case <-r.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow changes which members there are.
func (r *framesRig) follow(change func([]clusterinformers.Spec) []clusterinformers.Spec) {
	r.mu.Lock()
	r.specs = change(r.specs)
	r.mu.Unlock()
	r.wake.Fire()
}

func newFramesRig(t *testing.T) *framesRig {
	t.Helper()
	var kinds []sim.Kind
	for _, k := range sim.BuiltinKinds() {
		if slices.Contains([]string{"Namespace", "ConfigMap", "Pod", "Secret", "Service", "Deployment"}, k.Kind) {
			kinds = append(kinds, k)
		}
	}
	fleet, err := sim.New(sim.Options{Members: 2, Kinds: kinds})
	must(t, err)
	t.Cleanup(fleet.Close)
	r := &framesRig{t: t, honest: fleet.Members()[0], server: fleet.Members()[1], wake: trigger.New()}
	for _, m := range fleet.Members() {
		for i := range 30 {
			must(t, m.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("kept-", i)}}))
		}
	}
	r.client, err = kubernetes.NewForConfig(r.server.RESTConfig())
	must(t, err)
	r.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), LogBytes: 1 << 20})
	must(t, err)
	r.manager, err = clusterinformers.New(clusterinformers.Options{
		Index: r.index, Sources: []clusterinformers.Source{r}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		DiscoveryInterval: time.Second, PingInterval: time.Second, PingTimeout: time.Second, GiveUpAfter: 3 * time.Second,
	})
	must(t, err)
	kubeconfig, err := r.honest.Kubeconfig()
	must(t, err)
	r.specs = []clusterinformers.Spec{{Name: "good/honest", UID: "good/honest", Kubeconfig: kubeconfig, Trusted: true}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.manager.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			must(t, err)
		case <-time.After(patience):
			t.Error("the manager does not end")
		}
	})
	return r
}

// until waits for something to be so.
func (r *framesRig) until(what string, check func() error) {
	r.t.Helper()
	if err := kube.Until(r.t.Context(), patience, check); err != nil {
		r.t.Errorf("%s: %v", what, err)
	}
}

func (r *framesRig) status(name string) clusterinformers.MemberStatus {
	for _, m := range r.manager.Members() {
		if m.Name == name {
			return m
		}
	}
	return clusterinformers.MemberStatus{}
}

// synced reports that a member is not connected, or that not all of it is Synced.
func (r *framesRig) synced(name string) error {
	m := r.status(name)
	if m.State != connection.Connected || !m.Ready() {
		return fmt.Errorf("%s is %s %s %s: %v, last error %q", name, m.State, m.Reason, m.Message, m.Scopes, m.LastError)
	}
	return nil
}

// held are the versions of a member's ConfigMaps in the index.
func (r *framesRig) held(name string) string {
	seq, err := r.index.Snapshot().List(aggregate.Query{Kind: "ConfigMap", Members: []string{name}})
	must(r.t, err)
	var out []string
	for o := range seq {
		out = append(out, o.Name()+"@"+o.ResourceVersion())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// served are those of the server behind the proxies.
func (r *framesRig) served() string {
	list, err := r.client.CoreV1().ConfigMaps("").List(r.t.Context(), metav1.ListOptions{})
	must(r.t, err)
	var out []string
	for _, o := range list.Items {
		out = append(out, o.Name+"@"+o.ResourceVersion)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// change changes an object of both servers, and waits until the honest one's is held.
func (r *framesRig) change(n int) {
	name, patch := fmt.Sprint("kept-", n%30), fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n)
	must(r.t, r.server.Patch(configMaps, "default", name, patch))
	must(r.t, r.honest.Patch(configMaps, "default", name, patch))
	r.until("a change of the honest member is held", func() error {
		o, there := r.index.Snapshot().Get(aggregate.Ref{Member: "good/honest", Kind: "ConfigMap", Namespace: "default", Name: name})
		if label, _ := o.Label("n"); !there || label != fmt.Sprint(n) {
			return fmt.Errorf("%s has label %q, want %d", name, label, n)
		}
		return nil
	})
}

// usage is what this process holds, after a collection.
func (r *framesRig) usage() usage {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	must(r.t, err)
	return usage{heap: int64(m.HeapAlloc), goroutines: runtime.NumGoroutine(), files: len(open)}
}

// attacked is how long the attacks go on at least.
const attacked = 3 * time.Second

// TestHostile_AttackedConnectionsHarmNobodyElse has a member for each class that attacks
// connections, all at once: the honest one is followed meanwhile, what the others are said to
// be is so, and they are held as they are when the attacks are over.
func TestHostile_AttackedConnectionsHarmNobodyElse(t *testing.T) {
	random := seed.Of(t)
	r := newFramesRig(t)
	r.until("the honest member", func() error { return r.synced("good/honest") })
	before := r.usage()

	proxies, attacks := map[string]*Proxy{}, map[string]*Attack{}
	for i, class := range frameClasses {
		p, err := Listen(r.server.RESTConfig(), nil)
		must(t, err)
		t.Cleanup(func() { p.Close() })
		kubeconfig, err := p.Kubeconfig()
		must(t, err)
		name := "evil/" + class.Name
		proxies[name], attacks[name] = p, class.Draw(rand.New(rand.NewPCG(random, uint64(i)))) // a mix, not a secret
		r.follow(func(specs []clusterinformers.Spec) []clusterinformers.Spec {
			return append(specs, clusterinformers.Spec{Name: name, UID: name, Kubeconfig: kubeconfig, Trusted: true})
		})
	}
	for name := range proxies {
		r.until("before the attacks", func() error { return r.synced(name) })
	}
	for name, p := range proxies {
		p.SetAttacks(random|1, attacks[name])
	}
	idle := func() (names []string) {
		for name, l := range attacks {
			if l.frames() && proxies[name].Tampered() == 0 {
				names = append(names, name)
			}
		}
		return names
	}
	begun := time.Now()
	for n := 0; time.Since(begun) < attacked || len(idle()) > 0 && time.Since(begun) < patience; n++ {
		r.change(n)
	}
	for _, name := range idle() {
		t.Errorf("%s has attacked no frame", name)
	}
	if err := r.synced("good/honest"); err != nil {
		t.Error(err)
	}
	r.until("the honest member is fresh", func() error {
		if f := r.status("good/honest").Freshness; f == nil || *f > 5*time.Second {
			return fmt.Errorf("it is as of %v ago", f)
		}
		return nil
	})
	served := r.served()
	for name, l := range attacks {
		if !l.Exact {
			continue
		}
		r.until(name+" is said to be as it is", func() error {
			if r.synced(name) == nil && r.held(name) != served {
				return fmt.Errorf("all is Synced, and held is\n%s\nwant\n%s", r.held(name), served)
			}
			return nil
		})
		t.Logf("%s: %v, %d frames attacked, reached by net/http: %q", name, r.synced(name), proxies[name].Tampered(), r.status(name).Transport)
	}

	for _, p := range proxies {
		p.SetAttacks(random | 2)
	}
	for name := range proxies {
		r.until("after the attacks", func() error {
			if r.held(name) != served {
				return fmt.Errorf("%s; held is\n%s\nwant\n%s", fmt.Sprint(r.synced(name)), r.held(name), served)
			}
			return r.synced(name)
		})
	}
	r.follow(func(specs []clusterinformers.Spec) []clusterinformers.Spec { return specs[:1] })
	r.until("the others have left", func() error {
		if n := len(r.manager.Members()); n != 1 {
			return fmt.Errorf("%d members are there", n)
		}
		return nil
	})
	for _, p := range proxies {
		must(t, p.Close())
	}
	r.until("what they have taken is given back", func() error {
		u := r.usage()
		if u.goroutines > before.goroutines+10 || u.files > before.files+10 || u.heap > before.heap+16<<20 {
			return fmt.Errorf("%+v, %+v before", u, before)
		}
		return nil
	})
}
