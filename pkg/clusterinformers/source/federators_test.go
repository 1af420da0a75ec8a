package source

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/queryserver"
	"federator.dev/federator/test/sim"
)

// setSource is a source whose view a test sets.
type setSource struct {
	mu   sync.Mutex
	view clusterinformers.View
	wake trigger.Trigger
}

func (s *setSource) Run(ctx context.Context, set func(clusterinformers.View)) error {
	for {
		s.mu.Lock()
		view := s.view
		s.mu.Unlock()
		set(view)
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *setSource) set(members ...clusterinformers.Spec) {
	s.mu.Lock()
	s.view = clusterinformers.View{Members: members}
	s.mu.Unlock()
	s.wake.Fire()
}

// federatorRig is one federator in this process: a manager and its index.
type federatorRig struct {
	t       *testing.T
	index   *aggregate.Index
	manager *clusterinformers.Manager
	stop    func()
}

func startFederator(t *testing.T, block uint64, o clusterinformers.Options) *federatorRig {
	t.Helper()
	f := &federatorRig{t: t}
	var err error
	f.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(block)})
	must(t, err)
	o.Index, o.Logger, o.DiscoveryInterval = f.index, slog.New(newLogs(t)), time.Second
	f.manager, err = clusterinformers.New(o)
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- f.manager.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *federatorRig) until(what string, is func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		if time.Now().After(deadline) {
			for _, m := range f.manager.Members() {
				f.t.Logf("%s %s %s %s: %+v", m.Name, m.State, m.Reason, m.Message, m.Details)
			}
			f.t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

// never has all commits looked at from now on, until what it returns is called.
func (f *federatorRig) never(what string, is func(*aggregate.Snapshot) bool) (end func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	cursor, done := f.index.Cursor(f.index.Snapshot()), make(chan struct{})
	go func() {
		defer close(done)
		for {
			b, err := cursor.Next(ctx)
			if err != nil {
				return
			}
			if is(b.After) {
				f.t.Errorf("%s at %d", what, b.After.Revision())
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (f *federatorRig) scope(member string, kind aggregate.Kind) aggregate.Status {
	info, _ := f.index.Snapshot().Scope(member, kind)
	return info.Status
}

func (f *federatorRig) untilState(member string, kind aggregate.Kind, state aggregate.State, says string) {
	f.t.Helper()
	f.until(member+" "+string(kind)+" is "+state.String()+" "+says, func() bool {
		s := f.scope(member, kind)
		return s.State == state && strings.Contains(s.Reason, says)
	})
}

func (f *federatorRig) bodies(member string, kind aggregate.Kind) map[string]string {
	f.t.Helper()
	all, err := f.index.Snapshot().List(aggregate.Query{Kind: kind, Members: []string{member}})
	must(f.t, err)
	out := map[string]string{}
	for o := range all {
		body, err := o.AppendBody(nil)
		must(f.t, err)
		out[o.Namespace()+"/"+o.Name()] = string(body)
	}
	return out
}

// fleetOf gives a query API what it needs of a manager.
type fleetOf struct{ *clusterinformers.Manager }

func (f fleetOf) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	all, changed := f.Manager.Resources()
	out := make([]queryapi.ServedResource, len(all))
	for i, r := range all {
		out[i] = queryapi.ServedResource(r)
	}
	return out, changed
}

// regionRig is a federator that another one reads.
type regionRig struct {
	*federatorRig

	dir    string
	server *queryserver.Server
	later  *laterSource // of another federator; nil: there is none
}

// serve starts the query API, and writes what is needed to reach it.
func (r *regionRig) serve(o queryapi.Options) {
	r.t.Helper()
	o.Index, o.Fleet, o.Local, o.Known, o.Via = r.index, fleetOf{r.manager}, o.Hub == nil, r.manager.Known, r.manager.Via
	if o.Installation == "" {
		o.Installation = "region"
	}
	r.server = queryserver.Start(r.t, o)
	writeFile(r.t, filepath.Join(r.dir, "ca.crt"), r.server.CertificateAuthority())
	if o.Local {
		writeFile(r.t, filepath.Join(r.dir, "token"), []byte(r.server.Token()+"\n"))
	}
}

func (r *regionRig) options(name string) FederatorOptions {
	return FederatorOptions{
		Name: name, Installation: "global", Server: "https://" + r.server.Address, CAFile: filepath.Join(r.dir, "ca.crt"), TokenFile: filepath.Join(r.dir, "token"),
		Logger: slog.New(newLogs(r.t)), Interval: 50 * time.Millisecond,
	}
}

// startGlobal starts a federator that reads others.
func startGlobal(t *testing.T, kinds []aggregate.Kind, sources ...FederatorOptions) *federatorRig {
	t.Helper()
	var all []clusterinformers.Source
	for _, o := range sources {
		s, err := NewFederator(o)
		must(t, err)
		all = append(all, s)
	}
	g := startFederator(t, 1, clusterinformers.Options{Sources: all, Installation: "global"})
	g.manager.RequireKinds(kinds)
	return g
}

func simSpec(t *testing.T, m *sim.Member) clusterinformers.Spec {
	t.Helper()
	kubeconfig, err := m.Kubeconfig()
	must(t, err)
	return clusterinformers.Spec{
		Name: "fleet/" + m.Name(), UID: "uid-" + m.Name(), Kubeconfig: kubeconfig, Trusted: true, Labels: []aggregate.Label{{Key: "tier", Value: "gold"}},
		Cluster: aggregate.Cluster{Annotations: []aggregate.Label{{Key: "note", Value: "n"}}, Conditions: []aggregate.Condition{{Type: "Ready", Status: "True", Message: "m"}}, Version: "v1.36.3"},
	}
}

func simKinds(names ...string) (kinds []sim.Kind) {
	for _, k := range sim.BuiltinKinds() {
		if slices.Contains(names, k.Kind) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func startSim(t *testing.T) *sim.Fleet {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	return newSim(t)
}

func newSim(t *testing.T) *sim.Fleet {
	t.Helper()
	fleet, err := sim.New(sim.Options{Members: 2, Kinds: simKinds("Namespace", "Pod", "ConfigMap", "Secret", "Node")})
	must(t, err)
	t.Cleanup(fleet.Close)
	for _, m := range fleet.Members() {
		must(t, m.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bare"}}))
		must(t, m.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{NodeName: "n1"}}))
		must(t, m.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"k": []byte("v")}}))
		must(t, m.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}}))
	}
	return fleet
}

var (
	podResource = schema.GroupResource{Resource: "pods"}
	held        = []aggregate.Kind{"Namespace", "Pod", "Secret", "Node"}
)

func startRegion(t *testing.T, fleet *sim.Fleet, block uint64) (*regionRig, *setSource) {
	t.Helper()
	src := &setSource{wake: trigger.New()}
	var specs []clusterinformers.Spec
	for _, m := range fleet.Members() {
		specs = append(specs, simSpec(t, m))
	}
	src.view.Members = specs
	r := &regionRig{dir: t.TempDir()}
	r.federatorRig = startFederator(t, block, clusterinformers.Options{
		Sources: []clusterinformers.Source{src}, Kinds: []clusterinformers.KindRule{{Kind: "ConfigMap", Exclude: true}, {Kind: "*"}},
	})
	return r, src
}

func TestFederator_MembersAreAsThere(t *testing.T) {
	fleet := startSim(t)
	region, src := startRegion(t, fleet, 1)
	region.serve(queryapi.Options{})
	one, two := fleet.Members()[0], fleet.Members()[1]
	there, here := "fleet/"+one.Name(), "eu/fleet."+one.Name()
	g := startGlobal(t, []aggregate.Kind{"Pod", "ConfigMap", "Widget.shop.example"}, region.options("eu"))

	for _, kind := range held {
		g.untilState(here, kind, aggregate.Synced, "")
		if is, was := g.bodies(here, kind), region.bodies(there, kind); len(is) == 0 && kind != "Node" || !maps.Equal(is, was) {
			t.Errorf("%s: %v, there %v", kind, is, was)
		}
	}
	g.untilState(here, "ConfigMap", aggregate.Unknown, "its federator does not hold it")
	g.untilState(here, "Widget.shop.example", aggregate.NotServed, "")
	m, _ := g.index.Snapshot().Member(here)
	if was, _ := region.index.Snapshot().Member(there); m.UID != was.UID || !slices.Equal(m.Labels, was.Labels) || !m.Cluster.Equal(&was.Cluster) || m.Version != was.Version {
		t.Errorf("%+v, there %+v", m, was)
	}
	if _, _, _, err := g.manager.Writer(here, "Pod", ""); !errors.Is(err, clusterinformers.ErrReadOnly) {
		t.Errorf("Writer: %v", err)
	}
	if err := g.manager.CheckWritable(here); !errors.Is(err, clusterinformers.ErrReadOnly) || g.manager.WritesHeld(here) == "" {
		t.Errorf("CheckWritable: %v", err)
	}

	must(t, one.Modify(podResource, "default", "web", func(o sim.Object) { o.SetLabels(map[string]string{"app": "api"}) }))
	g.until("the change is here", func() bool { return strings.Contains(g.bodies(here, "Pod")["default/web"], `"app":"api"`) })
	must(t, one.Delete(podResource, "default", "bare"))
	g.until("the deletion is here", func() bool { return len(g.bodies(here, "Pod")) == 1 })

	one.Cut()
	g.untilState(here, "Pod", aggregate.Stale, "at its federator")
	g.untilState(here, "Widget.shop.example", aggregate.Unknown, "")
	g.untilState("eu/fleet."+two.Name(), "Pod", aggregate.Synced, "")
	if len(g.bodies(here, "Pod")) != 1 {
		t.Error("what was held has gone")
	}
	must(t, one.Restore())
	g.untilState(here, "Pod", aggregate.Synced, "")
	g.untilState(here, "Widget.shop.example", aggregate.NotServed, "")

	one.Forbid(podResource)
	one.DropWatches(podResource)
	g.untilState(here, "Pod", aggregate.Forbidden, "at its federator")
	one.Allow(podResource)

	g.untilState(here, "Pod", aggregate.Synced, "")
	check := g.never("looks deleted", func(s *aggregate.Snapshot) bool {
		info, _ := s.Scope(here, "Pod")
		return info.Status.State.Complete() && info.Objects == 0
	})
	src.set(simSpec(t, two))
	g.until("the member has left", func() bool { _, is := g.index.Snapshot().Member(here); return !is })
	check()
}

func TestFederator_Restarts(t *testing.T) {
	fleet := startSim(t)
	region, _ := startRegion(t, fleet, 1)
	region.serve(queryapi.Options{})
	here := "eu/fleet." + fleet.Members()[0].Name()
	o := region.options("eu")
	g := startGlobal(t, []aggregate.Kind{"Pod", "Widget.shop.example"}, o)
	g.untilState(here, "Pod", aggregate.Synced, "")

	must(t, region.server.End())
	region.stop()
	g.untilState(here, "Pod", aggregate.Stale, "")
	g.untilState(here, "Widget.shop.example", aggregate.Unknown, "")
	must(t, fleet.Members()[0].Delete(podResource, "default", "bare"))

	again, _ := startRegion(t, fleet, 2)
	again.dir = region.dir
	listener := listenAt(t, region.server.Address)
	again.serve(queryapi.Options{Listener: listener})
	g.untilState(here, "Pod", aggregate.Synced, "")
	g.untilState(here, "Widget.shop.example", aggregate.NotServed, "")
	g.until("what was deleted meanwhile has gone", func() bool { return len(g.bodies(here, "Pod")) == 1 })
}

// Two federators read each other: each has the other's own members, and none of its own again.
func TestFederator_EachOther(t *testing.T) {
	fleet := startSim(t)
	var regions [2]*regionRig
	names := [2]string{"eu", "us"}
	for n, name := range names {
		// Where the other is is known once both are there.
		own := &setSource{wake: trigger.New(), view: clusterinformers.View{Members: []clusterinformers.Spec{simSpec(t, fleet.Members()[n])}}}
		regions[n] = &regionRig{dir: t.TempDir()}
		other := &laterSource{options: make(chan FederatorOptions, 1)}
		regions[n].federatorRig = startFederator(t, uint64(n+1), clusterinformers.Options{Sources: []clusterinformers.Source{own, other}, Installation: name})
		regions[n].later = other
	}
	for n, name := range names {
		// Each looks while the other does not know its members: it waits for them.
		regions[n].serve(queryapi.Options{Installation: name})
	}
	for n, name := range names {
		o := regions[n].options(name)
		o.Installation = names[1-n]
		regions[1-n].later.options <- o
	}
	for n := range names {
		other := names[1-n] + "/fleet." + fleet.Members()[1-n].Name()
		regions[n].untilState(other, "Pod", aggregate.Synced, "")
		for range 3 { // looks
			regions[n].until("no member has come back", func() bool {
				members := 0
				for m := range regions[n].index.Snapshot().Members() {
					members++
					if strings.Count(m.Name, ".") > 1 {
						t.Errorf("%s is its own", m.Name)
					}
				}
				return members == 2
			})
		}
		if via := regions[n].manager.Via(other); !slices.Equal(via, []string{names[1-n]}) {
			t.Errorf("via %v", via)
		}
	}
}

// laterSource is a federator that is known later.
type laterSource struct{ options chan FederatorOptions }

func (l *laterSource) Run(ctx context.Context, set func(clusterinformers.View)) error {
	set(clusterinformers.View{Members: []clusterinformers.Spec{}, Partial: true})
	select {
	case o := <-l.options:
		s, err := NewFederator(o)
		if err != nil {
			return err
		}
		return s.Run(ctx, set)
	case <-ctx.Done():
		return nil
	}
}

// The grants of the region decide, and narrower ones do not look like deletions.
func TestFederator_GrantsDecide(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{}).Hub
	fleet := newSim(t) // the hub's connections outlive the test
	region, _ := startRegion(t, fleet, 1)
	token := queryserver.TokenFor(t, hub, "global", "federator")
	region.serve(queryapi.Options{Hub: hub.RESTConfig(), Authorization: queryapi.Authorization{AllowTTL: 500 * time.Millisecond, DenyTTL: 500 * time.Millisecond}})
	writeFile(t, filepath.Join(region.dir, "token"), []byte(token))
	g := startGlobal(t, []aggregate.Kind{"Pod"}, region.options("eu"))
	one, two := fleet.Members()[0].Name(), fleet.Members()[1].Name()
	must(t, hub.Apply(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: fleet}\n")))
	rbac := hub.Client().RbacV1()
	_, err := rbac.RoleBindings("fleet").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "global"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "global"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: queryserver.UserOf("global")}},
	}, metav1.CreateOptions{})
	must(t, err)
	grant := func(resources []string, names ...string) {
		t.Helper()
		_, err := rbac.Roles("fleet").Update(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "global"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"members.federator.dev"}, Resources: resources, ResourceNames: names, Verbs: []string{"get", "list", "watch"}},
		}}, metav1.UpdateOptions{}) // which creates it, too
		must(t, err)
	}
	grant([]string{"pods", "namespaces"}, one)
	here := "eu/fleet." + one
	g.untilState(here, "Pod", aggregate.Synced, "")
	g.untilState(here, "Secret", aggregate.Forbidden, "")
	if _, is := g.index.Snapshot().Member("eu/fleet." + two); is {
		t.Error("a member of which nothing is granted is here")
	}
	if m, _ := g.index.Snapshot().Member(here); len(m.Cluster.Annotations) != 0 || len(m.Cluster.Conditions) != 1 || m.Cluster.Conditions[0].Message != "" {
		t.Errorf("who may not list all sees %+v", m.Cluster)
	}

	check := g.never("Synced without all", func(s *aggregate.Snapshot) bool {
		info, _ := s.Scope(here, "Pod")
		return info.Status.State == aggregate.Synced && info.Objects != 2
	})
	grant([]string{"namespaces"}, one, two)
	g.untilState(here, "Pod", aggregate.Forbidden, "")
	check()
	if len(g.bodies(here, "Pod")) != 2 {
		t.Error("what may not be read any more looks deleted")
	}
	grant([]string{"*"}, one, two)
	g.untilState(here, "Pod", aggregate.Synced, "")
	g.untilState("eu/fleet."+two, "Secret", aggregate.Synced, "")
	g.until("annotations are here", func() bool {
		m, _ := g.index.Snapshot().Member(here)
		return len(m.Cluster.Annotations) == 1
	})
}

func TestFederator_Loops(t *testing.T) {
	fleet := startSim(t)
	region, _ := startRegion(t, fleet, 1)
	region.serve(queryapi.Options{Installation: "global"})
	g := startGlobal(t, nil, region.options("eu"))
	g.until("it is refused", func() bool {
		m, is := g.manager.Member("eu/federator")
		return is && m.State == connection.Refused && m.Reason == connection.Loop
	})
	for m := range g.index.Snapshot().Members() {
		t.Errorf("%s is in the fleet", m.Name)
	}
}

// listenAt listens where another server has listened.
func listenAt(t *testing.T, address string) net.Listener {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		l, err := net.Listen("tcp", address)
		if err == nil {
			return l
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}
