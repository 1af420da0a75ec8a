package agents

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cputime"
	"federator.dev/federator/pkg/agent"
	"federator.dev/federator/pkg/agent/hubside"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/source"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/sim"
)

// few is how many agents there are without AGENTS.
const few = 30

// TestAgents_Many is the whole story: see the package.
func TestAgents_Many(t *testing.T) {
	n, life := few, 20*time.Second
	if text := os.Getenv("AGENTS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		ok(t, err)
		life = max(life, time.Duration(n)*150*time.Millisecond) // renewals are let through at a rate
	}
	r := newRig(t, n, life)
	r.step("all have joined and synced", func() { r.startFederator(); r.startAgents(); r.untilSynced() })
	t.Logf("%d agents and as many simulated members in this process: %d MiB of heap", n, heap()>>20)

	lists := r.lists()
	r.step("federator's listener restarts", func() { r.stopListener(); r.startListener(); r.untilConnected() })
	r.stormless()
	if again := r.lists() - lists; again != 0 {
		t.Errorf("%d lists although all watches can be continued", again)
	}
	r.step("federator restarts, with an index that is empty", func() { r.stopFederator(); r.startFederator(); r.untilSynced() })
	r.stormless()

	lists = r.lists()
	ok(t, hubside.RotateAuthority(t.Context(), r.hub.Client(), r.namespace, false))
	r.step("all have certificates of another CA", r.untilRenewed)
	ok(t, hubside.RotateAuthority(t.Context(), r.hub.Client(), r.namespace, true))
	r.step("the old CA is gone, and the listener restarts", func() { r.stopListener(); r.startListener(); r.untilConnected() })
	if again := r.lists() - lists; again != 0 {
		t.Errorf("%d lists although all watches can be continued", again)
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// rig is a federator, and many agents.
type rig struct {
	t         *testing.T
	hub       *kube.Hub
	namespace string
	life      time.Duration // of certificates
	log       *slog.Logger
	fleet     *sim.Fleet
	stores    []*memory
	tokens    []string
	address   string // of the listener

	server       atomic.Pointer[hubside.Server]
	manager      *clusterinformers.Manager
	stopListener func()
	stopManager  func()

	mu    sync.Mutex
	dials []time.Time // since the step began
}

func newRig(t *testing.T, n int, life time.Duration) *rig {
	t.Helper()
	r := &rig{t: t, hub: shared.Start(t).Hub, life: life, namespace: "default", log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))}
	var err error
	r.fleet, err = sim.New(sim.Options{Members: n, Kinds: []sim.Kind{{Kind: "ConfigMap", Resource: "configmaps", Versions: []string{"v1"}, Namespaced: true}, {Kind: "Namespace", Resource: "namespaces", Versions: []string{"v1"}}}})
	ok(t, err)
	t.Cleanup(r.fleet.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	r.address = l.Addr().String()
	ok(t, l.Close())
	return r
}

// step does something, and prints how long it took, and what it cost this process.
func (r *rig) step(what string, f func()) {
	r.t.Helper()
	r.mu.Lock()
	r.dials = nil
	r.mu.Unlock()
	began, cpu := time.Now(), cputime.Process()
	f()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t.Logf("%s: %.1f s, %.1f CPU-s (hub's API server apart), %d connections dialled", what, time.Since(began).Seconds(), (cputime.Process() - cpu).Seconds(), len(r.dials))
}

// stormless checks that agents did not dial all at once.
func (r *rig) stormless() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	most := 0
	for i, from := range r.dials {
		n := 0
		for _, at := range r.dials[i:] {
			if at.Sub(from) < 100*time.Millisecond {
				n++
			}
		}
		most = max(most, n)
	}
	r.t.Logf("at most %d connections dialled within 100 ms", most)
	if all := len(r.stores); all > few && most > all/2 {
		r.t.Errorf("%d of %d agents came back within 100 ms", most, all)
	}
}

func (r *rig) startFederator() {
	r.startListener()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	ok(r.t, err)
	members, err := source.NewMembers(source.MembersOptions{Config: r.hub.DirectRESTConfig(), Namespaces: []string{r.namespace}, Logger: r.log})
	ok(r.t, err)
	r.manager, err = clusterinformers.New(clusterinformers.Options{Index: index, Sources: []clusterinformers.Source{members}, Logger: r.log, Agents: dialer{r}, Audit: clusterinformers.Audit{Off: true}}) // an audit lists
	ok(r.t, err)
	r.stopManager = r.run(r.manager.Run)
}

func (r *rig) stopFederator() {
	r.stopManager()
	r.stopListener()
}

// dialer is the listener of now.
type dialer struct{ *rig }

// DialAgent implements clusterinformers.Agents.
func (d dialer) DialAgent(ctx context.Context, member, uid string) (net.Conn, error) {
	return d.server.Load().DialAgent(ctx, member, uid)
}

func (r *rig) startListener() {
	var l net.Listener
	var err error
	ok(r.t, kube.Until(r.t.Context(), 10*time.Second, func() error { l, err = net.Listen("tcp", r.address); return err }))
	s, err := hubside.New(hubside.Options{
		Hub: r.hub.DirectRESTConfig(), Namespace: r.namespace, Namespaces: []string{r.namespace}, Listener: l, Hosts: []string{"127.0.0.1"},
		CertificateLife: r.life, Process: "federator-0", Logger: r.log,
	})
	ok(r.t, err)
	r.server.Store(s)
	r.stopListener = r.run(s.Run)
}

// run runs something until it is stopped, or the test ends.
func (r *rig) run(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

// startAgents makes a Member for each simulated one, and an agent with a token for it.
func (r *rig) startAgents() {
	for i, m := range r.fleet.Members() {
		uid := r.create(m.Name())
		var token string
		ok(r.t, kube.Until(r.t.Context(), 30*time.Second, func() (err error) { // once the CA is there
			token, err = hubside.CreateToken(r.t.Context(), r.hub.Client(), r.namespace, r.namespace+"/"+m.Name(), uid, time.Hour)
			return err
		}))
		r.stores, r.tokens = append(r.stores, &memory{}), append(r.tokens, token)
		a, err := agent.New(agent.Options{
			Hubs: []string{r.address}, Token: token, Cluster: m.RESTConfig(), Store: r.stores[i], Version: "v9.9.9", Logger: r.log, Dial: r.dial,
		})
		ok(r.t, err)
		r.run(a.Run)
	}
}

func (r *rig) create(name string) (uid string) {
	u, err := shared.client.Resource(v1alpha1.Resource(v1alpha1.Members)).Namespace(r.namespace).Create(r.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion().String(), "kind": "Member",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"agent": map[string]any{}},
	}}, metav1.CreateOptions{})
	ok(r.t, err)
	return string(u.GetUID())
}

// dial dials federator, and takes note of when.
func (r *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dials = append(r.dials, time.Now())
	r.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// patience is how long something may take that an agent does in a moment.
func (r *rig) patience() time.Duration {
	return time.Minute + time.Duration(len(r.fleet.Members()))*500*time.Millisecond
}

// until waits until all members are as they should be.
func (r *rig) until(what string, is func(clusterinformers.MemberStatus) bool) {
	r.t.Helper()
	if err := kube.Until(r.t.Context(), r.patience(), func() error {
		all, missing := r.manager.Members(), ""
		n := 0
		for _, m := range all {
			if is(m) {
				n++
			} else {
				missing = fmt.Sprintf("%s is %s %s %s", m.Name, m.State, m.Reason, m.Message)
			}
		}
		if n < len(r.fleet.Members()) {
			return fmt.Errorf("%d of %d are %s: %s", n, len(r.fleet.Members()), what, missing)
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) untilSynced() {
	r.t.Helper()
	r.until("synced", func(m clusterinformers.MemberStatus) bool { return m.State == connection.Connected && m.Synced })
}

// untilConnected waits until all members are read again, by what they were read before.
func (r *rig) untilConnected() {
	r.t.Helper()
	r.until("connected", func(m clusterinformers.MemberStatus) bool {
		return m.State == connection.Connected && m.Scopes[aggregate.Synced] == 2
	})
}

// untilRenewed waits until all agents have another certificate than before.
func (r *rig) untilRenewed() {
	r.t.Helper()
	before := make([]int, len(r.stores))
	for i, s := range r.stores {
		before[i] = s.count()
	}
	ok(r.t, kube.Until(r.t.Context(), r.life+r.patience(), func() error {
		for i, s := range r.stores {
			if s.count() == before[i] {
				return fmt.Errorf("agent %d has not renewed its certificate", i)
			}
		}
		return nil
	}))
}

// lists is how often anything was listed.
func (r *rig) lists() int {
	n := 0
	for _, m := range r.fleet.Members() {
		n += m.Requests().Verb("list")
	}
	return n
}

// memory is a store that outlives nothing.
type memory struct {
	mu    sync.Mutex
	kept  *agent.Kept
	saved int
}

func (m *memory) Load(context.Context) (*agent.Kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept, nil
}

func (m *memory) Save(_ context.Context, k *agent.Kept) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = k
	m.saved++
	return nil
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.saved
}
