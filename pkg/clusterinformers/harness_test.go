package clusterinformers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/sim"
)

var (
	pods       = schema.GroupResource{Resource: "pods"}
	configMaps = schema.GroupResource{Resource: "configmaps"}
	secrets    = schema.GroupResource{Resource: "secrets"}
)

// patience is how long a test waits for what must happen soon.
const patience = 20 * time.Second

// kindsOf picks built-in kinds by their names.
func kindsOf(names ...string) []sim.Kind {
	var out []sim.Kind
	for _, k := range sim.BuiltinKinds() {
		if slices.Contains(names, k.Kind) {
			out = append(out, k)
		}
	}
	return out
}

// few are enough kinds for most tests; Namespace carries the cluster's identity.
func fewKinds() sim.Options {
	return sim.Options{Members: 1, Kinds: kindsOf("Namespace", "Pod", "ConfigMap", "Secret", "Node")}
}

// fixed is a source whose view the test sets.
type fixed struct {
	mu   sync.Mutex
	view []clusterinformers.Spec // nil: not spoken yet
	part bool                    // there may be others
	wake trigger.Trigger
}

func newFixed(view ...clusterinformers.Spec) *fixed {
	return &fixed{view: view, wake: trigger.New()}
}

func (f *fixed) Run(ctx context.Context, set func(clusterinformers.View)) error {
	for {
		f.mu.Lock()
		view, part := f.view, f.part
		f.mu.Unlock()
		if view != nil {
			set(clusterinformers.View{Members: view, Partial: part})
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *fixed) set(view ...clusterinformers.Spec) { f.setView(clusterinformers.View{Members: view}) }

func (f *fixed) setView(view clusterinformers.View) {
	f.mu.Lock()
	f.view, f.part = append([]clusterinformers.Spec{}, view.Members...), view.Partial
	f.mu.Unlock()
	f.wake.Fire()
}

// journal keeps the messages of a log, and may panic on one of them, as
// anybody's handler may.
type journal struct {
	slog.Handler
	*journalState
}

type journalState struct {
	mu    sync.Mutex
	lines map[string]int
	fatal map[string]int // message → panics left
}

func (j journal) Handle(ctx context.Context, r slog.Record) error {
	j.mu.Lock()
	j.lines[r.Message]++
	j.fatal[r.Message]--
	boom := j.fatal[r.Message] >= 0
	j.mu.Unlock()
	if boom {
		panic("a log handler failed")
	}
	return j.Handler.Handle(ctx, r)
}

func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return journal{j.Handler.WithAttrs(attrs), j.journalState}
}

func (j journal) count(message string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines[message]
}

func (j journal) panicOn(message string, times int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fatal[message] = times
}

type dynamicClient = dynamic.Interface

// rig is a manager that follows simulated members.
type rig struct {
	t        *testing.T
	fleet    *sim.Fleet
	index    *aggregate.Index
	manager  *clusterinformers.Manager
	source   *fixed
	log      journal
	metrics  *prometheus.Registry
	ownLists map[string]int // LISTs that the test itself made, by member and kind
	end      func()         // stops the manager, and checks that Run returns
	dynamic  map[string]dynamicClient
}

func specOf(t *testing.T, m *sim.Member) clusterinformers.Spec {
	t.Helper()
	kubeconfig, err := m.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	return clusterinformers.Spec{Name: "fleet/" + m.Name(), UID: "uid-" + m.Name(), Kubeconfig: kubeconfig, Trusted: true}
}

func nameOf(m *sim.Member) string { return "fleet/" + m.Name() }

// newRig makes a fleet and a manager of it. prepare may fill the members and
// change the options; start runs the manager.
func newRig(t *testing.T, fleet sim.Options, prepare func(*rig, *clusterinformers.Options)) *rig {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	r := &rig{
		t: t, ownLists: map[string]int{}, dynamic: map[string]dynamicClient{}, metrics: prometheus.NewRegistry(),
		log: journal{slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}), &journalState{lines: map[string]int{}, fatal: map[string]int{}}},
	}
	var err error
	if r.fleet, err = sim.New(fleet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.fleet.Close)
	if r.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)}); err != nil {
		t.Fatal(err)
	}
	r.source = newFixed()
	opts := clusterinformers.Options{
		Index: r.index, Sources: []clusterinformers.Source{r.source}, Logger: slog.New(r.log), Metrics: r.metrics,
	}
	for _, m := range r.fleet.Members() {
		r.source.view = append(r.source.view, specOf(t, m))
	}
	if prepare != nil {
		prepare(r, &opts)
	}
	if r.manager, err = clusterinformers.New(opts); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) start() *rig {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.manager.Run(ctx) }()
	r.end = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				r.t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			r.t.Error("Run does not return")
		}
	})
	r.t.Cleanup(r.end)
	return r
}

// follow starts a manager and waits for its members to be synced.
func follow(t *testing.T, fleet sim.Options, prepare func(*rig, *clusterinformers.Options)) *rig {
	t.Helper()
	r := newRig(t, fleet, prepare).start()
	for _, m := range r.fleet.Members() {
		r.synced(m)
	}
	return r
}

// until waits for a condition.
func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	r.within(patience, what, cond)
}

func (r *rig) within(limit time.Duration, what string, cond func() bool) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			out, _ := json.MarshalIndent(r.manager.Members(), "", " ") //nolint:errcheck // only more to read
			r.t.Fatalf("waited %s in vain: %s\n%s", limit, what, out)
		}
	}
}

// during checks that a condition holds for a while.
func (r *rig) during(d time.Duration, what string, cond func() bool) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(d); ; {
		if !cond() {
			r.t.Fatalf("does not hold: %s", what)
		}
		select {
		case <-tick.C:
		case <-deadline:
			return
		}
	}
}

func (r *rig) status(m *sim.Member) clusterinformers.MemberStatus {
	for _, st := range r.manager.Members() {
		if st.Name == nameOf(m) {
			return st
		}
	}
	return clusterinformers.MemberStatus{}
}

func (r *rig) detail(m *sim.Member, kind aggregate.Kind) clusterinformers.ScopeStatus {
	for _, d := range r.status(m).Details {
		if d.Kind == kind {
			return d
		}
	}
	return clusterinformers.ScopeStatus{}
}

func (r *rig) scope(m *sim.Member, kind aggregate.Kind) aggregate.ScopeInfo {
	info, _ := r.index.Snapshot().Scope(nameOf(m), kind)
	return info
}

func (r *rig) state(m *sim.Member, kind aggregate.Kind) aggregate.State {
	return r.scope(m, kind).Status.State
}

func (r *rig) untilState(m *sim.Member, kind aggregate.Kind, want aggregate.State) {
	r.t.Helper()
	r.until(fmt.Sprintf("%s of %s is %s", kind, m.Name(), want), func() bool { return r.state(m, kind) == want })
}

// all reports whether every scope of a member is in one of the states.
func (r *rig) all(m *sim.Member, states ...aggregate.State) bool {
	n := 0
	for info := range r.index.Snapshot().Scopes(nameOf(m)) {
		n++
		if !slices.Contains(states, info.Status.State) {
			return false
		}
	}
	return n > 0
}

func (r *rig) synced(m *sim.Member) {
	r.t.Helper()
	r.until(m.Name()+" is synced", func() bool {
		st := r.status(m)
		return st.Synced && st.State == connection.Connected && r.all(m, aggregate.Synced, aggregate.Partial, aggregate.NotServed)
	})
}

// lists is how often a kind was listed, in either way, but by the test itself.
func (r *rig) lists(m *sim.Member, kind schema.GroupResource) int {
	return m.Requests().Count("list", kind) + m.Requests().Count("watchlist", kind) - r.ownLists[m.Name()+kind.String()]
}

// allLists is lists for every kind.
func (r *rig) allLists(m *sim.Member) int {
	n := m.Requests().Verb("list") + m.Requests().Verb("watchlist")
	for key, lists := range r.ownLists {
		if strings.HasPrefix(key, m.Name()) {
			n -= lists
		}
	}
	return n
}

// held renders what the index holds of a kind, one line an object, sorted.
func (r *rig) held(m *sim.Member, kind aggregate.Kind) []string {
	r.t.Helper()
	seq, err := r.index.Snapshot().List(aggregate.Query{Kind: kind, Members: []string{nameOf(m)}})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for o := range seq {
		body, err := o.AppendBody(nil)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s/%s %s %s %s", o.Namespace(), o.Name(), o.UID(), o.ResourceVersion(), body))
	}
	slices.Sort(out)
	return out
}

// listed renders what a member answers to a LIST in the same way.
func (r *rig) listed(m *sim.Member, k sim.Kind, cut func(map[string]any)) []string {
	r.t.Helper()
	if r.dynamic[m.Name()] == nil {
		c, err := dynamic.NewForConfig(m.RESTConfig())
		if err != nil {
			r.t.Fatal(err)
		}
		r.dynamic[m.Name()] = c
	}
	r.ownLists[m.Name()+k.GroupResource().String()]++
	gvr := k.GroupResource().WithVersion(k.Versions[0])
	list, err := r.dynamic[m.Name()].Resource(gvr).List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, u := range list.Items {
		u.SetManagedFields(nil)
		if cut != nil {
			cut(u.Object)
		}
		var body bytes.Buffer
		enc := json.NewEncoder(&body)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(u.Object); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s/%s %s %s %s", u.GetNamespace(), u.GetName(), u.GetUID(), u.GetResourceVersion(), strings.TrimSpace(body.String())))
	}
	slices.Sort(out)
	return out
}

// redact does to a Secret or ConfigMap what ingest does.
func redact(o map[string]any) {
	if o["kind"] != "Secret" && o["kind"] != "ConfigMap" {
		return
	}
	for _, field := range []string{"data", "binaryData", "stringData"} {
		if values, ok := o[field].(map[string]any); ok {
			for k := range values {
				values[k] = ""
			}
		}
	}
	meta := o["metadata"].(map[string]any)
	annotations, ok := meta["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		meta["annotations"] = annotations
	}
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	annotations["federator.dev/redacted"] = "true"
}

// exact waits until the index holds exactly what the member does: refs, UIDs,
// resourceVersions and bodies.
func (r *rig) exact(m *sim.Member, kinds []sim.Kind) {
	r.t.Helper()
	for _, k := range kinds {
		kind := aggregate.MakeKind(k.Kind, k.Group)
		want := r.listed(m, k, redact)
		tick := time.NewTicker(5 * time.Millisecond)
		deadline := time.After(patience)
		for !slices.Equal(want, r.held(m, kind)) {
			select {
			case <-tick.C:
				continue
			case <-deadline:
			}
			got := r.held(m, kind)
			for i := range max(len(want), len(got)) {
				if i >= len(want) || i >= len(got) || want[i] != got[i] {
					r.t.Fatalf("%s of %s: index has %d objects, member %d; first difference\nmember %s\nindex  %s", kind, m.Name(), len(got), len(want), at(want, i), at(got, i))
				}
			}
		}
		tick.Stop()
	}
}

func at(s []string, i int) string {
	if i < len(s) {
		return s[i]
	}
	return "(none)"
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pod(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: []string{"default", "shop", "ops"}[i%3], Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{"app": fmt.Sprint("a", i%7)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}},
		},
		Spec:   corev1.PodSpec{NodeName: fmt.Sprint("node-", i%5), Containers: []corev1.Container{{Name: "web", Image: "shop/web:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.0.%d", i)},
	}
}

func configMap(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("cm-", i)},
		Data:       map[string]string{"key": fmt.Sprint("value ", i)},
	}
}

// fill gives a member n pods and as many ConfigMaps.
func fill(t *testing.T, m *sim.Member, n int) {
	t.Helper()
	for i := range n {
		ok(t, m.Create(pod(i)))
		ok(t, m.Create(configMap(i)))
	}
}

// touch changes one pod, and returns the resourceVersion that it has then.
func touch(t *testing.T, m *sim.Member, i int, label string) {
	t.Helper()
	p := pod(i)
	ok(t, m.Modify(pods, p.Namespace, p.Name, func(o sim.Object) {
		labels := maps.Clone(o.GetLabels())
		labels["touched"] = label
		o.SetLabels(labels)
	}))
}

// touched waits until a change made by touch is in the index.
func (r *rig) touched(m *sim.Member, i int, label string) {
	r.t.Helper()
	p := pod(i)
	ref := aggregate.Ref{Member: nameOf(m), Kind: "Pod", Namespace: p.Namespace, Name: p.Name}
	r.until(fmt.Sprintf("%s has label %s", ref, label), func() bool {
		o, ok := r.index.Snapshot().Get(ref)
		if !ok {
			return false
		}
		v, _ := o.Label("touched")
		return v == label
	})
}
