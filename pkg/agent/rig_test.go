package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/agent"
	"federator.dev/federator/pkg/agent/hubside"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

// patience is how long a test waits for what must happen soon.
const patience = 30 * time.Second

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t testing.TB, what string, check func() error) {
	t.Helper()
	if err := kube.Until(t.Context(), patience, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// hub is a namespace of the hub with processes that agents connect to.
type hub struct {
	t         testing.TB
	namespace string // federator's, and of the Members
	client    kubernetes.Interface
	life      time.Duration // of certificates
	log       *slog.Logger
	address   string // of the proxy that agents dial: there is no other way between them
	proxy     *tcpproxy.Proxy
	listening string                         // where the process of now does
	server    atomic.Pointer[hubside.Server] // of now
	metrics   *prometheus.Registry           // of the newest process
	stop      func()
}

func newHub(t testing.TB, life time.Duration) *hub {
	t.Helper()
	f := shared.Start(t)
	h := &hub{t: t, client: f.Hub.Client(), life: life, log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))}
	ns, err := h.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "agents-"}}, metav1.CreateOptions{})
	ok(t, err)
	h.namespace = ns.Name
	h.start()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	h.proxy, err = tcpproxy.Listen(ctx, "127.0.0.1:0", h.listening)
	ok(t, err)
	t.Cleanup(func() { h.proxy.Close() })
	h.address = h.proxy.Addr()
	return h
}

// start starts a process. One that runs is to be stopped before.
func (h *hub) start() {
	h.t.Helper()
	s, address, stop := h.process()
	h.server.Store(s)
	h.stop = stop
	h.listening = address.String()
	if h.proxy != nil {
		h.proxy.SetTargets(h.listening)
	}
}

// process starts one more process.
func (h *hub) process() (*hubside.Server, net.Addr, func()) {
	h.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(h.t, err)
	h.metrics = prometheus.NewRegistry()
	s, err := hubside.New(hubside.Options{
		Metrics: h.metrics, Hub: shared.Fleet.Hub.DirectRESTConfig(), Namespace: h.namespace, Namespaces: []string{h.namespace}, Listener: l, Hosts: []string{"127.0.0.1"},
		CertificateLife: h.life, Process: "federator-0", Logger: h.log,
	})
	ok(h.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				h.t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			h.t.Error("Run does not return")
		}
	})
	h.t.Cleanup(stop)
	return s, l.Addr(), stop
}

func (h *hub) members() dynamic.ResourceInterface {
	return shared.client.Resource(v1alpha1.Resource(v1alpha1.Members)).Namespace(h.namespace)
}

// create creates a Member with an agent, and returns its name and UID.
func (h *hub) create(name string) (member, uid string) {
	h.t.Helper()
	u, err := h.members().Create(h.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion().String(), "kind": "Member",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"agent": map[string]any{}},
	}}, metav1.CreateOptions{})
	ok(h.t, err)
	return h.namespace + "/" + name, string(u.GetUID())
}

// member returns a Member.
func (h *hub) member(name string) *v1alpha1.Member {
	h.t.Helper()
	u, err := h.members().Get(h.t.Context(), name, metav1.GetOptions{})
	ok(h.t, err)
	m := &v1alpha1.Member{}
	ok(h.t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, m))
	return m
}

// token makes a token for a Member.
func (h *hub) token(member, uid string, life time.Duration) string {
	h.t.Helper()
	var token string
	until(h.t, "a token is made", func() (err error) { // once the CA is there
		token, err = hubside.CreateToken(h.t.Context(), h.client, h.namespace, member, uid, life)
		return err
	})
	return token
}

// running is an agent.
type running struct {
	stop func()
	done chan error
}

// runAgent runs an agent until it is stopped, or the test ends.
func (h *hub) runAgent(cluster *rest.Config, token string, store agent.Store) *running {
	h.t.Helper()
	a, err := agent.New(agent.Options{
		Hubs: []string{h.address}, Token: token, Cluster: cluster, Store: store, Version: "v9.9.9",
		Logger: h.log.With("agent", true), PingInterval: time.Second, PingTimeout: time.Second,
	})
	ok(h.t, err)
	return h.run(a)
}

// run runs an agent until it is stopped, or the test ends.
func (h *hub) run(a *agent.Agent) *running {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	r := &running{done: make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-r.done:
			r.done <- err
		case <-time.After(patience):
			h.t.Error("the agent does not end")
		}
	})
	h.t.Cleanup(r.stop)
	return r
}

// credentials returns an account of the member with some rights, for an agent.
func credentials(t testing.TB, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	m := shared.Fleet.Members[0]
	c := m.Client()
	cred, err := m.IssueToken(t.Context(), "default", name, time.Hour)
	ok(t, err)
	rules = append(rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}})
	_, err = c.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	ok(t, err)
	_, err = c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
	}, metav1.CreateOptions{})
	ok(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		ok(t, c.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}))
		ok(t, c.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}))
	})
	return m.RESTConfigWith(cred)
}

// readAll are the rights to read everything, as the chart gives them.
var readAll = rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{"*"}, Resources: []string{"*"}}

// fixed is a source whose view the test sets.
type fixed struct {
	mu   sync.Mutex
	view []clusterinformers.Spec
	wake trigger.Trigger
}

func (f *fixed) Run(ctx context.Context, set func(clusterinformers.View)) error {
	for {
		f.mu.Lock()
		view := f.view
		f.mu.Unlock()
		set(clusterinformers.View{Members: view})
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// follower follows members by their agents.
type follower struct {
	t       testing.TB
	index   *aggregate.Index
	manager *clusterinformers.Manager
	source  *fixed
}

// dialer is the process of now, as processes are stopped and started.
type dialer struct{ *hub }

func (d dialer) DialAgent(ctx context.Context, member, uid string) (net.Conn, error) {
	return d.server.Load().DialAgent(ctx, member, uid)
}

// follow follows members until the test ends.
func (h *hub) follow(kinds []string, specs ...clusterinformers.Spec) *follower {
	h.t.Helper()
	f := &follower{t: h.t, source: &fixed{view: specs, wake: trigger.New()}}
	var err error
	f.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	ok(h.t, err)
	var rules []clusterinformers.KindRule
	for _, k := range kinds {
		rules = append(rules, clusterinformers.KindRule{Kind: k})
	}
	f.manager, err = clusterinformers.New(clusterinformers.Options{
		Index: f.index, Sources: []clusterinformers.Source{f.source}, Logger: h.log, Kinds: rules, Agents: dialer{h},
		PingInterval: time.Second, PingTimeout: time.Second,
	})
	ok(h.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	done := make(chan error, 1)
	go func() { done <- f.manager.Run(ctx) }()
	h.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Errorf("Run: %v", err)
		}
	})
	return f
}

func (f *follower) status(member string) clusterinformers.MemberStatus {
	for _, s := range f.manager.Members() {
		if s.Name == member {
			return s
		}
	}
	return clusterinformers.MemberStatus{}
}

// synced waits until a member is synced.
func (f *follower) synced(member string) {
	f.t.Helper()
	until(f.t, member+" is synced", func() error {
		if s := f.status(member); !s.Synced || s.State != connection.Connected {
			return fmt.Errorf("%s %s %s", s.State, s.Reason, s.Message)
		}
		return nil
	})
}

// away waits until a member is out of reach.
func (f *follower) away(member string) clusterinformers.MemberStatus {
	f.t.Helper()
	until(f.t, member+" is away", func() error {
		if s := f.status(member); s.State != connection.Disconnected {
			return errors.New(string(s.State))
		}
		return nil
	})
	return f.status(member)
}

// has waits until the index has, or has not, a ConfigMap.
func (f *follower) has(member, name string, want bool) {
	f.t.Helper()
	until(f.t, fmt.Sprintf("ConfigMap %s is there: %t", name, want), func() error {
		if _, is := f.index.Snapshot().Get(aggregate.Ref{Member: member, Kind: "ConfigMap", Namespace: "default", Name: name}); is != want {
			return errors.New("it is not so")
		}
		return nil
	})
}

// put creates a ConfigMap in the member.
func put(t testing.TB, name string) {
	t.Helper()
	maps := shared.Fleet.Members[0].Client().CoreV1().ConfigMaps("default")
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	ok(t, err)
	t.Cleanup(func() { ok(t, maps.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})) })
}

// nameOf makes a name of a test's.
func nameOf(t testing.TB) string {
	return strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
}
