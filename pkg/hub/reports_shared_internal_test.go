package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

// reportHub is a hub that stores ClusterReports, with versions as an API server has them.
type reportHub struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]any
}

func (h *reportHub) put(name string, o map[string]any) {
	h.version++
	meta := o["metadata"].(map[string]any)
	meta["name"], meta["resourceVersion"] = name, fmt.Sprint(h.version)
	h.objects[name] = o
}

func (h *reportHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	fail := func(code int, reason metav1.StatusReason) {
		answer(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason})
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		fail(http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	was := h.objects[name]
	stale := func(version any) bool {
		return version != nil && (was == nil || version != was["metadata"].(map[string]any)["resourceVersion"])
	}
	switch r.Method {
	case http.MethodGet:
		items := []any{}
		for _, name := range slices.Sorted(maps.Keys(h.objects)) {
			items = append(items, map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": h.objects[name]["metadata"]})
		}
		answer(w, http.StatusOK, map[string]any{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{"resourceVersion": "1"}, "items": items})
	case http.MethodPatch:
		var o map[string]any
		if err := json.Unmarshal(body, &o); err != nil {
			fail(http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		if stale(o["metadata"].(map[string]any)["resourceVersion"]) {
			fail(http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		h.put(name, o)
		answer(w, http.StatusOK, map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]})
	case http.MethodDelete:
		var o struct {
			Preconditions struct{ ResourceVersion any }
		}
		switch _ = json.Unmarshal(body, &o); {
		case was == nil:
			fail(http.StatusNotFound, metav1.StatusReasonNotFound)
		case stale(o.Preconditions.ResourceVersion):
			fail(http.StatusConflict, metav1.StatusReasonConflict)
		default:
			delete(h.objects, name)
			answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
		}
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// has wants reports with so many failures each.
func (h *reportHub) has(t *testing.T, when string, want map[string]int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	got := map[string]int{}
	for name, o := range h.objects {
		summary, _ := o["summary"].(map[string]any)
		fail, _ := summary["fail"].(float64)
		got[name] = int(fail)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: the hub has %v, want %v", when, got, want)
	}
}

type noLibrary struct{ Library }

func (noLibrary) Origin(string) Origin { return Origin{} }

// reporter is one of the processes that share a fleet.
type reporter struct {
	t       *testing.T
	index   *aggregate.Index
	loop    *enforce.Loop
	reports *Reports
	fleet   *ReportsFleet
	leads   bool
}

func newReporter(t *testing.T, host string) *reporter {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Name: "git", Files: []policy.File{{Path: "p.rego", Data: []byte(`# METADATA
# title: Labels
# custom: {severity: low, kinds: [Pod]}
package labels

violation contains {"msg": "bad"} if input.object.metadata.labels.bad
`)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := &reporter{t: t}
	if r.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)}); err != nil {
		t.Fatal(err)
	}
	if r.loop, err = enforce.New(enforce.Options{Index: r.index, Set: set, Bindings: []policy.Binding{{Name: "labels", Package: "labels"}}}); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	r.reports, err = NewReports(ReportsOptions{
		Config: &rest.Config{Host: host, Transport: transport}, Loop: r.loop, Library: noLibrary{}, IsLeader: func() bool { return r.leads }, NoClusters: true,
		Describes: func(member string) *corev1.ObjectReference {
			return &corev1.ObjectReference{APIVersion: "federator.dev/v1alpha1", Kind: "Member", Name: member}
		},
		Fleet: func() *ReportsFleet { return r.fleet },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return r
}

// member has a process hold a member with so many bad Pods.
func (r *reporter) member(name string, role aggregate.Role, bad int) {
	r.t.Helper()
	if err := r.index.PutMember(aggregate.Member{Name: name, UID: name, Role: role}); err != nil {
		r.t.Fatal(err)
	}
	scope, err := r.index.OpenScope(name, "Pod", "v1")
	if err != nil {
		r.t.Fatal(err)
	}
	var items []aggregate.Item
	for n := range bad {
		items = append(items, scope.Item(&aggregate.Record{
			Namespace: "shop", Name: fmt.Sprint("pod-", n), UID: fmt.Sprint(n), ResourceVersion: "1",
			Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"bad":"x"},"name":"pod-%d","namespace":"shop"}}`, n),
		}))
	}
	if _, err := scope.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
		r.t.Fatal(err)
	}
	scope.Close()
}

// run writes what has changed, once all is evaluated.
func (r *reporter) run(fleet *ReportsFleet, leads bool) error {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	for at := r.loop.Point(); at == nil || !at.State().Synced || at.State().Snapshot.Revision() != r.index.Snapshot().Revision(); at = r.loop.Point() {
		select {
		case <-r.loop.Newer(at):
		case <-deadline:
			r.t.Fatal("nothing is evaluated")
		}
	}
	r.fleet, r.leads = fleet, leads
	return r.reports.reconcile(r.t.Context())
}

func (r *reporter) mustRun(fleet *ReportsFleet, leads bool) {
	r.t.Helper()
	if err := r.run(fleet, leads); err != nil {
		r.t.Fatal(err)
	}
}

// TestReports_AreOfWhoJudges: each process writes the reports of the members that it judges and touches no other's, also while
// one moves; those of nobody the leader removes.
func TestReports_AreOfWhoJudges(t *testing.T) {
	h := &reportHub{objects: map[string]map[string]any{}}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	for _, name := range []string{"federator-fleet-1", "federator-fleet-p-9-1", "federator-fleet.left-1", "federator-fleet-p-1-1"} {
		h.put(name, map[string]any{"metadata": map[string]any{"labels": map[string]any{managedBy: "federator"}}})
	}
	fleet := func(self string, judges map[string]string) *ReportsFleet {
		return &ReportsFleet{Self: self, Processes: []string{"p-0", "p-1"}, Judges: judges}
	}
	before, after := map[string]string{"fleet/a": "p-0", "fleet/b": "p-1", "fleet/n": ""}, map[string]string{"fleet/a": "p-0", "fleet/b": "p-0", "fleet/n": ""}
	a, b := newReporter(t, server.URL), newReporter(t, server.URL)
	a.member("fleet/a", aggregate.Judge, 1)
	a.member("fleet/b", aggregate.Standby, 0)
	b.member("fleet/b", aggregate.Judge, 2)
	b.mustRun(fleet("p-1", before), false)
	h.has(t, "who does not lead", map[string]int{"federator-fleet-1": 0, "federator-fleet-p-9-1": 0, "federator-fleet.left-1": 0, "federator-fleet.b-1": 2})
	a.mustRun(fleet("p-0", before), true)
	h.has(t, "all have written", map[string]int{"federator-fleet.a-1": 1, "federator-fleet.b-1": 2})

	old, now := fleet("p-1", before), fleet("p-1", after)
	b.member("fleet/b", aggregate.Judge, 4)
	b.mustRun(now, false)
	h.has(t, "p-1 knows that it moves", map[string]int{"federator-fleet.a-1": 1, "federator-fleet.b-1": 2})
	a.mustRun(fleet("p-0", after), true)
	h.has(t, "p-0 does not judge it yet", map[string]int{"federator-fleet.a-1": 1, "federator-fleet.b-1": 2})
	a.member("fleet/b", aggregate.Judge, 3)
	a.mustRun(fleet("p-0", after), true)
	h.has(t, "it has moved", map[string]int{"federator-fleet.a-1": 1, "federator-fleet.b-1": 3})
	a.member("fleet/b", aggregate.Judge, 5)
	a.mustRun(fleet("p-0", after), true)
	h.has(t, "it changes there", map[string]int{"federator-fleet.a-1": 1, "federator-fleet.b-1": 5})

	b.reports.shared = nil // it has not been told that the member was another's meanwhile
	if err := b.run(old, false); err == nil {
		t.Error("a process that has not heard of the move writes over what it does not know")
	}
	h.has(t, "p-1 has not heard of the move", map[string]int{"federator-fleet.a-1": 1, "federator-fleet.b-1": 5})
	b.index.RemoveMember("fleet/b")
	b.mustRun(fleet("p-1", after), true)
	h.has(t, "p-1 has let go of it, and leads", map[string]int{"federator-fleet.a-1": 1, "federator-fleet.b-1": 5})
}
