package shards_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/shards"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/sim"
)

const (
	renew    = 400 * time.Millisecond
	expire   = 1600 * time.Millisecond
	patience = 20 * time.Second
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until polls until a check passes.
func until(t *testing.T, check func() error) {
	t.Helper()
	must(t, kube.Until(t.Context(), patience, check))
}

// fixed is a source whose view the test sets.
type fixed struct {
	mu   sync.Mutex
	view *clusterinformers.View // nil: not spoken yet
	wake trigger.Trigger
}

func newFixed(view ...clusterinformers.Spec) *fixed {
	return &fixed{view: &clusterinformers.View{Members: view}, wake: trigger.New()}
}

func (f *fixed) Run(ctx context.Context, set func(clusterinformers.View)) error {
	for {
		f.mu.Lock()
		view := f.view
		f.mu.Unlock()
		if view != nil {
			set(*view)
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *fixed) set(view clusterinformers.View) {
	f.mu.Lock()
	f.view = &view
	f.mu.Unlock()
	f.wake.Fire()
}

// world is a namespace of the hub, a fleet of simulated members, and who leads.
type world struct {
	t         *testing.T
	hub       *kube.Hub
	client    kubernetes.Interface
	namespace string
	fleet     *sim.Fleet
	leader    atomic.Pointer[string]
}

func newWorld(t *testing.T, namespace string, members int) *world {
	t.Helper()
	w := &world{t: t, hub: shared.Start(t).Hub}
	w.client = w.hub.Client()
	ns, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namespace + "-"}}, metav1.CreateOptions{})
	must(t, err)
	w.namespace = ns.Name
	kinds := slices.DeleteFunc(sim.BuiltinKinds(), func(k sim.Kind) bool { return k.Kind != "Namespace" && k.Kind != "ConfigMap" })
	w.fleet, err = sim.New(sim.Options{Members: members, Kinds: kinds})
	must(t, err)
	t.Cleanup(w.fleet.Close)
	return w
}

// specs are the members as a source describes them.
func (w *world) specs() []clusterinformers.Spec {
	w.t.Helper()
	var out []clusterinformers.Spec
	for _, m := range w.fleet.Members() {
		kubeconfig, err := m.Kubeconfig()
		must(w.t, err)
		out = append(out, clusterinformers.Spec{Name: "fleet/" + m.Name(), UID: "uid-" + m.Name(), Kubeconfig: kubeconfig, Trusted: true})
	}
	return out
}

// process is one of the processes that share the fleet, in this one.
type process struct {
	*shards.Shards

	w       *world
	id      string
	index   *aggregate.Index
	manager *clusterinformers.Manager
	metrics *prometheus.Registry
	cut     atomic.Bool // from the hub
	stop    func()      // in order; it may be called again
	ended   chan error  // what Run of its shards has returned

	fleet atomic.Pointer[shards.Fleet]
	loads sync.Map // by member
}

var errCut = errors.New("the hub is not reached")

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// start starts a process.
func (w *world) start(id string, epoch aggregate.Revision, change func(*shards.Options), sources ...clusterinformers.Source) *process {
	t := w.t
	t.Helper()
	p := &process{w: w, id: id, metrics: prometheus.NewRegistry(), ended: make(chan error, 1)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("process", id)
	config := w.hub.RESTConfig()
	config.UserAgent = "federator " + w.namespace + " " + id
	connections := &http.Transport{TLSClientConfig: must2(rest.TLSConfigFor(config))(t), ForceAttemptHTTP2: true}
	config.TLSClientConfig, config.Dial = rest.TLSClientConfig{}, nil
	config.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if p.cut.Load() {
			return nil, errCut
		}
		return connections.RoundTrip(r)
	})
	p.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(uint64(epoch))})
	must(t, err)
	o := shards.Options{
		Hub: config, Namespace: w.namespace, ID: id, Epoch: p.index.First(), Address: listener.Addr().String(), Logger: log, Renew: renew, Expire: expire,
		Metrics: p.metrics,
		Lead: func() (time.Time, error) {
			if leader := w.leader.Load(); leader == nil || *leader != id {
				return time.Time{}, errors.New("another process leads")
			}
			return time.Now().Add(10 * time.Second), nil
		},
		Fleet: func(f shards.Fleet) { p.fleet.Store(&f) },
		Ready: p.ready,
		Measure: func(member string) (shards.Load, bool) {
			load, is := p.loads.Load(member)
			if !is {
				return shards.Load{}, false
			}
			return load.(shards.Load), true
		},
	}
	if change != nil {
		change(&o)
	}
	p.Shards, err = shards.New(o)
	must(t, err)
	if len(sources) == 0 {
		sources = []clusterinformers.Source{newFixed(w.specs()...)}
	}
	p.manager, err = clusterinformers.New(clusterinformers.Options{Index: p.index, Sources: p.Sources(sources), Logger: log})
	must(t, err)
	server := &http.Server{Handler: p.Handler(), TLSConfig: p.TLS(), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = server.ServeTLS(listener, "", "") })
	running.Go(func() { p.ended <- p.Shards.Run(ctx) })
	running.Go(func() {
		if err := p.manager.Run(ctx); err != nil {
			t.Errorf("manager of %s: %v", id, err)
		}
	})
	p.stop = sync.OnceFunc(func() {
		cancel()
		server.Close()
		running.Wait()
		connections.CloseIdleConnections()
	})
	t.Cleanup(p.stop)
	return p
}

func must2[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// kill ends a process without a word to the hub.
func (p *process) kill() {
	p.cut.Store(true)
	p.stop()
}

// ready reports whether the manager has read a member.
func (p *process) ready(member string) bool {
	st, is := p.manager.Member(member)
	return is && st.Synced
}

// roles are the members that the index has, by what this process is to them.
func (p *process) roles() map[string]aggregate.Role {
	out := map[string]aggregate.Role{}
	for m := range p.index.Snapshot().Members() {
		out[m.Name] = m.Role
	}
	return out
}

// lead lets a process lead.
func (w *world) lead(id string) { w.leader.Store(&id) }
