package hub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/kube"
)

// openReport is a Report or ClusterReport as its readers see it.
type openReport struct {
	metav1.ObjectMeta `json:"metadata"`
	Source            string                  `json:"source"`
	Scope             *corev1.ObjectReference `json:"scope"`
	Summary           struct{ Pass, Fail, Warn, Error, Skip int }
	Results           []struct {
		Policy, Rule, Severity, Result, Message string
		Resources                               []corev1.ObjectReference
		Properties                              map[string]string
		Timestamp                               metav1.Timestamp
	}
}

// openReports lists reports as "namespace/name", with "" for ClusterReports.
func openReports(ctx context.Context) (map[string]openReport, error) {
	out := map[string]openReport{}
	for _, kind := range []string{"reports", "clusterreports"} {
		list, err := shared.client.Resource(schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: kind}).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			text, err := list.Items[i].MarshalJSON()
			if err != nil {
				return nil, err
			}
			var r openReport
			if err := json.Unmarshal(text, &r); err != nil {
				return nil, err
			}
			out[r.Namespace+"/"+r.Name] = r
		}
	}
	return out, nil
}

// awaitReports waits for reports that pass a check.
func awaitReports(t *testing.T, what string, check func(map[string]openReport) error) map[string]openReport {
	t.Helper()
	var all map[string]openReport
	if err := until(func() (err error) {
		if all, err = openReports(t.Context()); err == nil {
			err = check(all)
		}
		return err
	}); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return all
}

// podsOf are the Pods of one member of an index.
type podsOf struct {
	t     *testing.T
	scope *aggregate.Scope
}

func newPodsOf(t *testing.T, index *aggregate.Index, member, uid string) *podsOf {
	t.Helper()
	if err := index.PutMember(aggregate.Member{Name: member, UID: uid}); err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScope(member, "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	return &podsOf{t, scope}
}

func (p *podsOf) put(label string, names ...string) {
	p.t.Helper()
	for _, name := range names {
		p.scope.Upsert(p.scope.Item(&aggregate.Record{
			Namespace: "shop", Name: name, UID: "uid-" + name, ResourceVersion: label, Labels: []aggregate.Label{{Key: label, Value: "x"}},
			Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{%q:"x"},"name":%q,"namespace":"shop"}}`, label, name),
		}))
	}
	p.scope.SetStatus(aggregate.Status{State: aggregate.Synced})
	if _, err := p.scope.Commit(); err != nil {
		p.t.Error(err)
	}
}

// namedPods are n names.
func namedPods(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("pod-%04d", i))
	}
	return names
}

// runAll runs parts until stop, which joins them, or the test's end.
func runAll(t *testing.T, parts ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, run := range parts {
		running.Go(func() {
			if err := run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// lockedLog is a log that may be read while it is written.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// withoutReports leaves a hub that does not serve reports.
func withoutReports(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		forget(t, crds, "", "reports.openreports.io", "clusterreports.openreports.io")
		if err := until(func() error {
			if _, err := openReports(context.Background()); !apierrors.IsNotFound(err) {
				return fmt.Errorf("reports are served: %w", err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestReports_OfKeysMembersAndErrors: results that are about no object.
func TestReports_OfKeysMembersAndErrors(t *testing.T) {
	h := realHub(t)
	withoutReports(t)
	if err := h.InstallCRDs(t.Context(), "testdata/openreports"); err != nil {
		t.Fatal(err)
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	newPodsOf(t, index, "context/z", "z").put("x", "one", "two")
	src := policy.Source{Name: "kinds"}
	for pkg, rest := range map[string]string{
		"keys":    "kinds: [Pod], subject: view.spaces}\npackage keys\n\nview.spaces[input.ref.namespace] contains true\n\nviolation contains {\"msg\": \"crowded\"} if count(input.entries) > 1\n",
		"members": "subject: member}\npackage members\n\nviolation contains {\"msg\": \"old\"} if input.member.name\n",
		"errors":  "kinds: [Pod]}\npackage errors\n\nviolation contains {\"msg\": \"odd\"} if to_number(input.object.metadata.name) > 1\n",
	} {
		src.Files = append(src.Files, policy.File{Path: pkg + ".rego", Data: []byte("# METADATA\n# title: " + pkg + "\n# description: " + pkg + "\n# custom: {severity: high, " + rest)})
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own, _ := policy.DefaultBindings(set, nil)
	loop, err := enforce.New(enforce.Options{Index: index, Set: set, Bindings: own})
	if err != nil {
		t.Fatal(err)
	}
	reports, err := hub.NewReports(hub.ReportsOptions{
		Config: hubConfig(), Loop: loop, Library: shelf{set}, IsLeader: func() bool { return true }, Interval: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	runAll(t, loop.Run, reports.Run)
	all := awaitReports(t, "two reports", func(all map[string]openReport) error {
		if len(all) != 2 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	fleet, member := all["/federator-fleet-1"], all["/federator-context.z-1"]
	if s := fleet.Summary; s.Fail != 1 || len(fleet.Results) != 1 || fleet.Results[0].Properties["key"] != "shop" || len(fleet.Results[0].Resources) != 0 {
		t.Errorf("of a key: %+v", fleet)
	}
	if s := member.Summary; s.Fail != 1 || s.Error != 2 || s.Pass != 0 || s.Warn != 0 || len(member.Results) != 3 {
		t.Errorf("of a member: %+v", member)
	}
	for _, r := range member.Results {
		if about := len(r.Resources); r.Result == "fail" && (r.Rule != "members" || about != 0) || r.Result == "error" && (about != 1 || !strings.Contains(r.Message, "to_number")) {
			t.Errorf("result %+v", r)
		}
	}

	// What is said of a member stays while nothing is known of it, as when it is away at a start.
	newPodsOf(t, index, "context/y", "y").put("x", "one")
	failsOf := func(member string, want int) func(map[string]openReport) error {
		return func(all map[string]openReport) error {
			if s := all["/federator-context."+member+"-1"].Summary; s.Fail != 1 || s.Error+s.Pass != want {
				return fmt.Errorf("%+v", s)
			}
			return nil
		}
	}
	awaitReports(t, "one of the other member", failsOf("y", 1))
	index.RemoveMember("context/y")
	for _, m := range []aggregate.Member{{Name: "context/y", UID: "y", GivenUp: true}, {Name: "context/y", UID: "y"}, {Name: "context/y", UID: "y", Version: "v1.36.0"}} {
		if err := index.PutMember(m); err != nil {
			t.Fatal(err)
		}
		newPodsOf(t, index, "context/x"+m.Version, "x").put("x", "one") // once it has a report, that of y was looked at
		awaitReports(t, "one of a member that joins", failsOf("x"+m.Version, 1))
		awaitReports(t, "one of a member that is not known", failsOf("y", 1))
		index.RemoveMember("context/x" + m.Version)
	}
	if err := index.PutMember(aggregate.Member{Name: "context/y", UID: "y", Version: "v1.36.0", GivenUp: true}); err != nil {
		t.Fatal(err)
	}
	awaitReports(t, "one of what is known of it", failsOf("y", 0))
}

// TestReports_OfViolations: from a hub without OpenReports to one that is rid of
// them again.
func TestReports_OfViolations(t *testing.T) {
	began := time.Now()
	h := realHub(t)
	clusters := clusterv1.GroupVersion.WithResource("clusters")
	t.Cleanup(func() { forget(t, clusters, "reported", "eu-1") })
	withoutReports(t)
	if err := h.Register(t.Context(), kube.Cluster{Namespace: "reported", Name: "eu-1"}); err != nil {
		t.Fatal(err)
	}
	var cluster *unstructured.Unstructured
	if err := until(func() (err error) {
		cluster, err = shared.client.Resource(clusters).Namespace("reported").Get(t.Context(), "eu-1", metav1.GetOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	eu := newPodsOf(t, index, "reported/eu-1", string(cluster.GetUID()))
	eu.put("bad", namedPods(12)...)
	eu.put("good", "a", "b")
	local := newPodsOf(t, index, "context/My_Laptop", "x")
	local.put("bad", "one", "exempt")
	library := newShelf(t, "reported")
	set, _ := library.Policies()
	bindings := []policy.Binding{{
		Name: "reported", Package: "reported", Exemptions: []policy.Exemption{{Names: []string{"exempt"}, Reason: "it is ours"}},
	}}
	text := &lockedLog{}
	log := slog.New(slog.NewTextHandler(text, nil))
	loop, err := enforce.New(enforce.Options{Index: index, Set: set, Bindings: bindings})
	if err != nil {
		t.Fatal(err)
	}
	var lead atomic.Bool
	opts := hub.ReportsOptions{
		Config: hubConfig(), Loop: loop, Library: library, IsLeader: lead.Load, Namespaces: []string{"reported"},
		Interval: 50 * time.Millisecond, PerReport: 4, PerMember: 10, Logger: log,
	}
	reports, err := hub.NewReports(opts)
	if err != nil {
		t.Fatal(err)
	}
	runAll(t, loop.Run)
	stop := runAll(t, reports.Run)

	// Without the CRDs it waits for them.
	lead.Store(true)
	if err := until(func() error {
		if !strings.Contains(text.String(), "install the CRDs of OpenReports") {
			return errors.New("the log does not say that the CRDs are missing")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	lead.Store(false)
	if err := h.InstallCRDs(t.Context(), "testdata/openreports"); err != nil {
		t.Fatal(err)
	}
	lead.Store(true)
	const first, second, third = "reported/federator-eu-1-1", "reported/federator-eu-1-2", "reported/federator-eu-1-3"
	all := awaitReports(t, "what is found", func(all map[string]openReport) error {
		if len(all) != 4 {
			return fmt.Errorf("%d reports: %+v", len(all), all)
		}
		return nil
	})
	if n := strings.Count(text.String(), "install the CRDs"); n != 1 {
		t.Errorf("that CRDs are missing is logged %d times", n)
	}
	fail, pass, warn := 0, 0, 0
	for _, name := range []string{first, second, third} {
		r := all[name]
		fail, pass, warn = fail+r.Summary.Fail, pass+r.Summary.Pass, warn+r.Summary.Warn
		if owners := r.OwnerReferences; len(owners) != 1 || owners[0].UID != cluster.GetUID() || owners[0].Kind != "Cluster" || r.Scope == nil || r.Scope.Name != "eu-1" {
			t.Errorf("%s belongs to %+v, scope %+v", name, owners, r.Scope)
		}
		if r.Labels["app.kubernetes.io/managed-by"] != "federator" || r.Labels["federator.dev/member"] != "reported.eu-1" || r.Source != "federator" {
			t.Errorf("%s: labels %v, source %q", name, r.Labels, r.Source)
		}
	}
	if fail != 12 || pass != 2 || warn != 1 {
		t.Errorf("the summaries add up to %d fail, %d pass, %d warn", fail, pass, warn)
	}
	if len(all[first].Results) != 4 || len(all[second].Results) != 4 || len(all[third].Results) != 3 {
		t.Fatalf("results are spread otherwise: %+v", all)
	}
	one := all[first].Results[0]
	if one.Policy != "reported" || one.Rule != "reported" || one.Severity != "low" || one.Result != "fail" || one.Message != "has the label" || one.Properties["revision"] == "" ||
		one.Timestamp.Seconds < began.Unix() || one.Timestamp.Seconds > time.Now().Unix() ||
		len(one.Resources) != 1 || one.Resources[0] != (corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "pod-0000", UID: "uid-pod-0000"}) {
		t.Errorf("result %+v", one)
	}
	if left := all[third].Results[2]; left.Result != "warn" || left.Properties["leftOut"] != "2" || !strings.Contains(left.Message, "GET /query/v1/violations?member=reported%2Feu-1") {
		t.Errorf("what is left out is reported as %+v", left)
	}
	var laptop openReport
	for name, r := range all {
		if strings.HasPrefix(name, "/federator-context.my-laptop-") {
			laptop = r
		}
	}
	if s := laptop.Summary; s.Fail != 1 || s.Skip != 1 || s.Pass != 0 || len(laptop.Results) != 2 || laptop.Results[0].Properties["exempt"] != "it is ours" {
		t.Errorf("a member that is no Cluster: %+v", laptop)
	}

	// Only changed reports are written again.
	local.put("good", "one")
	after := awaitReports(t, "one is repaired", func(all map[string]openReport) error {
		if s := all["/"+laptop.Name].Summary; s.Fail != 0 || s.Pass != 1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if after[first].ResourceVersion != all[first].ResourceVersion {
		t.Error("a report that says the same was written again")
	}
	eu.put("good", namedPods(12)...)
	awaitReports(t, "all are repaired", func(all map[string]openReport) error {
		if s := all[first].Summary; len(all) != 2 || s.Fail != 0 || s.Pass != 14 || s.Warn != 0 || len(all[first].Results) != 0 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	// A member that leaves takes its reports along.
	if !index.RemoveMember("context/My_Laptop") {
		t.Error("the member was not there")
	}
	awaitReports(t, "a member has left", func(all map[string]openReport) error {
		if len(all) != 1 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	stop()

	// If disabled, it deletes federator's reports, and no others.
	foreign := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "openreports.io/v1alpha1", "kind": "Report", "metadata": map[string]any{"name": "another", "namespace": "reported"},
	}}
	if _, err := shared.client.Resource(schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "reports"}).Namespace("reported").
		Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	opts.Disabled = true
	off, err := hub.NewReports(opts)
	if err != nil {
		t.Fatal(err)
	}
	runAll(t, off.Run)
	awaitReports(t, "switched off", func(all map[string]openReport) error {
		if _, ok := all["reported/another"]; !ok || len(all) != 1 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
}

// forget removes objects of a cluster-scoped kind, or of a namespace, and waits until
// they are gone.
func forget(t *testing.T, kind schema.GroupVersionResource, namespace string, names ...string) {
	t.Helper()
	objects := shared.client.Resource(kind).Namespace(namespace)
	for _, name := range names {
		if err := until(func() error {
			err := objects.Delete(context.Background(), name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("%s is there: %w", name, err)
		}); err != nil {
			t.Error(err)
		}
	}
}

func TestNewReports_ValidatesOptions(t *testing.T) {
	index, _ := pods(t)
	library := newShelf(t, "p")
	set, _ := library.Policies()
	loop, err := enforce.New(enforce.Options{Index: index, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	good := hub.ReportsOptions{Config: &rest.Config{}, Loop: loop, Library: library, IsLeader: func() bool { return true }}
	if _, err := hub.NewReports(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*hub.ReportsOptions){
		"Config": func(o *hub.ReportsOptions) { o.Config = nil }, "Loop": func(o *hub.ReportsOptions) { o.Loop = nil },
		"Library": func(o *hub.ReportsOptions) { o.Library = nil }, "Lead": func(o *hub.ReportsOptions) { o.IsLeader = nil },
		"Every": func(o *hub.ReportsOptions) { o.Interval = -1 }, "PerReport": func(o *hub.ReportsOptions) { o.PerReport = -1 },
		"PerMember": func(o *hub.ReportsOptions) { o.PerMember = -1 },
	} {
		opts := good
		if spoil(&opts); opts.Logger != nil {
			t.Error("a logger")
		}
		if _, err := hub.NewReports(opts); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
