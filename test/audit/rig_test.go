package audit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/hostile"
	"federator.dev/federator/test/kube"
)

const memberName = "fleet/a"

// A resource is one that the tests write. The first two are audited in the first tier.
type resource struct {
	kind aggregate.Kind
	gvr  schema.GroupVersionResource
}

var resources = []resource{
	{"Secret", schema.GroupVersionResource{Version: "v1", Resource: "secrets"}},
	{"ServiceAccount", schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}},
	{"ConfigMap", schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}},
	{"Endpoints", schema.GroupVersionResource{Version: "v1", Resource: "endpoints"}},
}

// firstTier is how many of resources are in the first tier.
const firstTier = 2

// rig is a manager that follows a real member through a proxy.
type rig struct {
	t        testing.TB
	plane    *kube.ControlPlane
	proxy    *hostile.Proxy
	injector *injector
	index    *aggregate.Index
	manager  *clusterinformers.Manager
	client   dynamic.Interface // to the member, past the proxy
	metrics  *prometheus.Registry

	mu     sync.Mutex
	losses []clusterinformers.Loss
}

// view is a source of one member.
type view []clusterinformers.Spec

func (v view) Run(ctx context.Context, set func(clusterinformers.View)) error {
	set(clusterinformers.View{Members: v})
	<-ctx.Done()
	return nil
}

// newRig follows the member, by way of a proxy that is given what to do with events or, without,
// directly. Without rules the kinds of resources are held.
func newRig(t testing.TB, options clusterinformers.Audit, tamper bool, rules ...clusterinformers.KindRule) *rig {
	t.Helper()
	r := &rig{t: t, metrics: prometheus.NewRegistry(), injector: newInjector()}
	r.plane = shared.Start(t).Members[0]
	upstream := r.plane.RESTConfig()
	var err error
	if r.client, err = dynamic.NewForConfig(upstream); err != nil {
		t.Fatal(err)
	}
	kubeconfig := r.plane.Kubeconfig()
	if tamper {
		if r.proxy, err = hostile.Listen(upstream, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.proxy.Close() })
		r.endWatches()
		if kubeconfig, err = r.proxy.Kubeconfig(); err != nil {
			t.Fatal(err)
		}
	}
	if r.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)}); err != nil {
		t.Fatal(err)
	}
	if rules == nil {
		rules = []clusterinformers.KindRule{{Kind: "Namespace"}}
		for _, res := range resources {
			rules = append(rules, clusterinformers.KindRule{Kind: string(res.kind)})
		}
	}
	r.manager, err = clusterinformers.New(clusterinformers.Options{
		Index: r.index, Sources: []clusterinformers.Source{view{{Name: memberName, UID: "a", Kubeconfig: kubeconfig, Trusted: true}}},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: r.metrics, Kinds: rules, Audit: options, KeepSecretValues: true,
		OnLoss: func(l clusterinformers.Loss) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.losses = append(r.losses, l)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.manager.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	r.until(time.Minute, "the member is synced", func() error {
		if ready, waiting := r.manager.Ready(); !ready {
			return fmt.Errorf("waiting for %v", waiting)
		}
		return nil
	})
	return r
}

func (r *rig) until(within time.Duration, what string, check func() error) {
	r.t.Helper()
	if err := kube.Until(r.t.Context(), within, check); err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// endWatches ends all watches: federator opens them again where they were.
func (r *rig) endWatches() {
	r.proxy.SetAttacks(0, &hostile.Attack{Name: "losses", Event: r.injector.event})
}

// lost sums what audits have found, by cause.
func (r *rig) lost() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for _, l := range r.losses {
		for cause, n := range l.Differences {
			out[cause] += n
		}
	}
	return out
}

// differences compares what is held with what the member has: keys, UIDs and resourceVersions, and
// the content of ConfigMaps.
func (r *rig) differences() error {
	snapshot := r.index.Snapshot()
	for _, res := range resources {
		list, err := r.client.Resource(res.gvr).List(r.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			ref := aggregate.Ref{Member: memberName, Kind: res.kind, Namespace: o.GetNamespace(), Name: o.GetName()}
			got, held := snapshot.Get(ref)
			if !held || got.UID() != string(o.GetUID()) || got.ResourceVersion() != o.GetResourceVersion() {
				return fmt.Errorf("%s differs", ref)
			}
			body, err := got.AppendBody(nil)
			if err != nil {
				return err
			}
			if strings.Contains(string(body), altered) {
				return fmt.Errorf("%s has altered content", ref)
			}
		}
		if n, err := snapshot.Count(aggregate.Query{Kind: res.kind}); err != nil || n != len(list.Items) {
			return fmt.Errorf("%d %ss are held, want %d: %w", n, res.kind, len(list.Items), err)
		}
	}
	return nil
}

func object(res resource, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": string(res.kind),
		"metadata": map[string]any{"namespace": "default", "name": name, "labels": map[string]any{"round": "0"}},
	}}
}

func (r *rig) on(res resource) dynamic.ResourceInterface {
	return r.client.Resource(res.gvr).Namespace("default")
}

func (r *rig) create(res resource, name string) error {
	_, err := r.on(res).Create(r.t.Context(), object(res, name), metav1.CreateOptions{})
	return err
}

func (r *rig) label(res resource, name, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"round":%q}}}`, value)
	_, err := r.on(res).Patch(r.t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{})
	return err
}

func (r *rig) remove(res resource, name string) error {
	return r.on(res).Delete(r.t.Context(), name, metav1.DeleteOptions{})
}

// altered is a label of what an event was altered to.
const altered = "altered-on-the-way"

// losses are the ways to lose an event.
var losses = []string{"dropped addition", "dropped change", "dropped deletion", "dropped replacement", "repeated late", "swapped", "altered content", "altered version", "altered uid"}

// injector is what becomes of events, by the name of the object.
type injector struct {
	mu   sync.Mutex
	ways map[string]string           // by name
	seen map[string][]map[string]any // events since the object's way is another
}

func newInjector() *injector {
	return &injector{ways: map[string]string{}, seen: map[string][]map[string]any{}}
}

// set has the events of an object go another way from now on.
func (i *injector) set(name, way string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ways[name] = way
	delete(i.seen, name)
}

// count is how many events of an object have come since.
func (i *injector) count(name string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.seen[name])
}

// event returns what is sent instead of an event.
func (i *injector) event(_ *hostile.Call, event map[string]any) []map[string]any {
	same := []map[string]any{event}
	object, _ := event["object"].(map[string]any)
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen[name] = append(i.seen[name], event)
	n := len(i.seen[name])
	switch way := i.ways[name]; {
	case strings.HasPrefix(way, "dropped"):
		return nil
	case way == "repeated late" && n == 2:
		return []map[string]any{event, i.seen[name][0]}
	case way == "swapped" && n == 1:
		return nil
	case way == "swapped" && n == 2:
		return []map[string]any{event, i.seen[name][0]}
	case way == "altered content":
		meta["labels"] = map[string]any{"round": altered}
	case way == "altered version":
		if rv, err := strconv.Atoi(meta["resourceVersion"].(string)); err == nil {
			meta["resourceVersion"] = strconv.Itoa(rv - 1)
		}
	case way == "altered uid":
		meta["uid"] = "00000000-0000-4000-8000-000000000000"
	}
	return same
}

// relists is how often a kind was listed.
func (r *rig) relists(kind aggregate.Kind) (n int) {
	for _, m := range r.manager.Members() {
		for _, d := range m.Details {
			if d.Kind != kind {
				continue
			}
			for _, lists := range d.Relists {
				n += lists
			}
		}
	}
	return n
}

// lose has an event on an object lost in a way, and returns once it is. Where the kind was listed
// meanwhile, that may have healed it: lost is false.
func (r *rig) lose(res resource, name, way string) (lost bool, err error) {
	before := r.relists(res.kind)
	if err := r.loseEvent(res, name, way); err != nil && r.relists(res.kind) == before {
		return false, err
	}
	r.injector.set(name, "")
	return r.relists(res.kind) == before && r.detailState(res.kind) == aggregate.Synced, nil
}

func (r *rig) detailState(kind aggregate.Kind) aggregate.State {
	info, _ := r.index.Snapshot().Scope(memberName, kind)
	return info.Status.State
}

func (r *rig) loseEvent(res resource, name, way string) error {
	changes := []func() error{func() error { return r.label(res, name, "1") }}
	switch way {
	case "dropped addition":
		changes = []func() error{func() error { return r.create(res, name) }}
	case "dropped deletion":
		changes = []func() error{func() error { return r.remove(res, name) }}
	case "dropped replacement":
		changes = []func() error{func() error { return r.remove(res, name) }, func() error { return r.create(res, name) }}
	case "repeated late", "swapped":
		changes = append(changes, func() error { return r.label(res, name, "2") })
	}
	if way != "dropped addition" {
		if err := r.create(res, name); err != nil {
			return err
		}
		if err := kube.Until(r.t.Context(), 30*time.Second, func() error {
			if _, held := r.index.Snapshot().Get(aggregate.Ref{Member: memberName, Kind: res.kind, Namespace: "default", Name: name}); !held {
				return fmt.Errorf("%s %s is not held", res.kind, name)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	r.injector.set(name, way)
	for n, change := range changes {
		if err := change(); err != nil {
			return err
		}
		if err := kube.Until(r.t.Context(), 10*time.Second, func() error {
			if got := r.injector.count(name); got <= n {
				return fmt.Errorf("%d events of %s %s have come", got, res.kind, name)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// number is that of a variable of the environment.
func number(t testing.TB, name string, standard int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		t.Fatalf("%s=%q is no number above 0", name, text)
	}
	return n
}

// cpu is the processor time that the API server has taken.
func (r *rig) cpu() time.Duration {
	r.t.Helper()
	text, err := r.plane.Client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	const name = "process_cpu_seconds_total "
	lines := strings.Split(string(text), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name) })
	if at < 0 {
		r.t.Fatal("the API server does not say what time it has taken")
	}
	seconds, err := strconv.ParseFloat(strings.TrimPrefix(lines[at], name), 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return time.Duration(seconds * float64(time.Second))
}
