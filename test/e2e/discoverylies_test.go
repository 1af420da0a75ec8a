package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/sim"
)

var (
	acmeVault  = sim.Kind{Group: "acme.io", Kind: "Vault", Resource: "vaults", Versions: []string{"v1"}, Namespaced: true}
	acmeWidget = sim.Kind{Group: "acme.io", Kind: "Widget", Resource: "widgets", Versions: []string{"v1"}, Namespaced: true}
)

func acme(kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "acme.io/v1", "kind": kind, "metadata": map[string]any{"namespace": "default", "name": name},
	}}
}

// TestDiscovery_OneMemberDecidesNothingForOthers has the third of three members
// call its vaults widgets, its secrets pods and its pods something else, and looks
// at what a user who may read pods and widgets gets of the others.
func TestDiscovery_OneMemberDecidesNothingForOthers(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := newSimulated(t, 3, func(i int) string { return fmt.Sprintf("lies/m%d", i) }, nil, func(i int, m *sim.Member) {
		meta := func(kind string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-of-m%d", kind, i)}
		}
		must(m.Create(&corev1.Secret{ObjectMeta: meta("secret")}))
		if i < 2 {
			must(m.AddKind(acmeVault))
			must(m.AddKind(acmeWidget))
			must(m.Create(&corev1.Pod{ObjectMeta: meta("pod")}))
			must(m.Create(acme("Vault", fmt.Sprintf("vault-of-m%d", i))))
			must(m.Create(acme("Widget", fmt.Sprintf("widget-of-m%d", i))))
			return
		}
		m.RemoveKind(schema.GroupResource{Resource: "pods"})
		must(m.AddKind(sim.Kind{Kind: "Zzz", Resource: "pods", Versions: []string{"v1"}, Namespaced: true}))
		must(m.AddKind(sim.Kind{Kind: "Secret", Resource: "podes", Versions: []string{"v9"}, Namespaced: true}))
		must(m.AddKind(sim.Kind{Kind: "ClusterRole.rbac.authorization.k8s.io", Resource: "podz", Versions: []string{"v1beta1"}}))
		vaults := acmeVault
		vaults.Resource = "widgets"
		must(m.AddKind(vaults))
		must(m.Create(acme("Vault", "vault-of-m2")))
	}, func(o *queryapi.Options) {
		loop := leakPolicies(t, o.Index)
		o.Queries = map[string]queryapi.Query{
			"rego":       &policyquery.Rego{Index: o.Index, Kinds: o.Fleet.(served).Kinds, State: loop.State},
			"violations": policyquery.Violations{Kinds: o.Fleet.(served).Kinds, Loop: loop},
		}
	})
	must(s.api.hub.Apply(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: lies}\n")))
	st := &story{hub: s.api.hub, namespace: "lies"}
	must(st.hubGrant(t.Context(), st.user("tenant"), []string{"get", "list", "watch"}, []string{"pods", "widgets.acme.io"}, "all"))
	l := &leakCheck{t: t, s: s, rng: rand.New(rand.NewPCG(1, 1)), user: st.user("tenant")} // not a secret
	l.client = l.as()

	// names returns the marked names in an answer, each once.
	names := func(body []byte) []string {
		var out []string
		for _, kind := range []string{"pod", "secret", "vault", "widget"} {
			for i := range 3 {
				if name := fmt.Sprintf("%s-of-m%d", kind, i); strings.Contains(string(body), name) {
					out = append(out, name)
				}
			}
		}
		return out
	}
	pods, widgets := []string{"pod-of-m0", "pod-of-m1"}, []string{"widget-of-m0", "widget-of-m1"}
	err := until(t.Context(), patience, func() error {
		if code, _, body := l.fetch(t.Context(), "/fleet/api/v1/pods", "application/json"); code != http.StatusOK {
			return fmt.Errorf("pods: %d %s", code, body)
		}
		return nil
	})
	must(err)
	for _, tt := range []struct {
		path string
		code int
		want []string
	}{
		{"/fleet/api/v1/pods", http.StatusOK, pods},
		{"/fleet/api/v1/secrets", http.StatusForbidden, nil},
		{"/fleet/api/v9/podes", http.StatusNotFound, nil},
		{"/fleet/api/v1beta1/podz", http.StatusNotFound, nil},
		{"/members/lies/m2/api/v1/pods", http.StatusNotFound, nil},
		{"/fleet/apis/acme.io/v1/widgets", http.StatusOK, widgets},
		{"/fleet/apis/acme.io/v1/vaults", http.StatusOK, []string{"vault-of-m2"}}, // which it calls widgets
		{"/members/lies/m2/apis/acme.io/v1/widgets", http.StatusOK, []string{"vault-of-m2"}},
		{"/members/lies/m0/apis/acme.io/v1/vaults", http.StatusForbidden, nil},
		{"/query/v1/related?" + url.Values{"resource": {"widgets.acme.io"}, "member": {"lies/m0"}, "namespace": {"default"}, "name": {"widget-of-m0"}}.Encode(), http.StatusOK, []string{"widget-of-m0"}},
		{"/query/v1/rego?" + url.Values{"query": {`x := [n | some k; some m; some n; data.fleet.objects[k][m]["default"][n]; k in {"Pod", "Secret", "Widget.acme.io", "Vault.acme.io", "Zzz"}]`}}.Encode(), 0, nil},
		{"/query/v1/rego?" + url.Values{"query": {`s := object.get(data.fleet.objects, "Secret", {}); v := object.get(data.fleet.objects, "Vault.acme.io", {}); w := data.fleet.objects["Widget.acme.io"]; p := data.fleet.objects.Pod`}}.Encode(), 0, nil},
		{"/query/v1/violations?policy=own", http.StatusOK, slices.Concat(pods, []string{"vault-of-m2"}, widgets)},
	} {
		code, _, body := l.fetch(t.Context(), tt.path, "application/json")
		if tt.code != 0 && code != tt.code {
			t.Errorf("%s: %d %.300s, want %d", tt.path, code, body, tt.code)
		}
		for _, name := range names(body) {
			if strings.HasPrefix(name, "secret") || name == "vault-of-m0" || name == "vault-of-m1" {
				t.Errorf("%s shows %s to a user who may read pods and widgets: %.300s", tt.path, name, body)
			}
		}
		if got := names(body); tt.code == http.StatusOK && !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.path, got, tt.want)
		}
	}
	var count struct{ Total int }
	_, _, body := l.fetch(t.Context(), "/query/v1/count?resource=vaults.acme.io", "application/json")
	if err := json.Unmarshal(body, &count); err != nil || count.Total != 1 {
		t.Errorf("%s: of the vaults one may be counted (%v)", body, err)
	}

	// What is not believed is Unknown, not absent; what is believed says whom it contradicts.
	snapshot := s.fed.index.Snapshot()
	for kind, want := range map[aggregate.Kind]aggregate.State{"Pod": aggregate.Unknown, "Secret": aggregate.Synced, "Vault.acme.io": aggregate.Synced} {
		scope, found := snapshot.Scope("lies/m2", kind)
		if !found || scope.Status.State != want {
			t.Errorf("%s of the third member: %t, %+v, want %s", kind, found, scope.Status, want)
		}
	}
	if _, found := snapshot.Scope("lies/m2", "Zzz"); found {
		t.Error("Zzz has a scope")
	}
	if scope, _ := snapshot.Scope("lies/m2", "Vault.acme.io"); !strings.Contains(scope.Status.Reason, "Widget.acme.io in most members") {
		t.Errorf("the contradiction is not shown: %+v", scope.Status)
	}
}
