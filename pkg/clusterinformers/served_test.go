package clusterinformers_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

const widgetKind aggregate.Kind = "Widget.shop.example"

var (
	widgets = schema.GroupResource{Group: "shop.example", Resource: "widgets"}
	crds    = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
)

// withCRDs are few and the kind of definitions.
func withCRDs(members int) sim.Options {
	return sim.Options{Members: members, Kinds: kindsOf("Namespace", "Pod", "CustomResourceDefinition")}
}

func widgetCRD(versions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: widgets.String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Widget", Plural: "widgets"},
		},
	}
	for i, v := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v, Served: true, Storage: i == 0})
	}
	return crd
}

func widget(name, version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.Group + "/" + version, "kind": "Widget",
		"metadata": map[string]any{"namespace": "default", "name": name},
		"spec":     map[string]any{"size": int64(3), "ratio": 0.5, "tags": []any{"a", "b"}},
	}}
}

func serve(t *testing.T, m *sim.Member, versions ...string) {
	t.Helper()
	if m.Len(crds) == 0 {
		ok(t, m.Create(widgetCRD(versions...)))
		return
	}
	ok(t, m.Modify(crds, "", widgets.String(), func(o sim.Object) {
		o.(*apiextensionsv1.CustomResourceDefinition).Spec.Versions = widgetCRD(versions...).Spec.Versions
	}))
}

func widgetsAt(version string) []sim.Kind {
	return []sim.Kind{{Group: widgets.Group, Kind: "Widget", Resource: "widgets", Versions: []string{version}, Namespaced: true}}
}

func TestDiscovery_FollowsCustomResourceDefinitions(t *testing.T) {
	r := follow(t, withCRDs(1), nil) // the discovery interval is a minute: only a trigger can be in time
	m := r.fleet.Members()[0]
	serve(t, m, "v1beta1")
	ok(t, m.Create(widget("a", "v1beta1")))
	r.within(5*time.Second, "widgets are followed", func() bool { return r.state(m, widgetKind) == aggregate.Synced })
	r.exact(m, widgetsAt("v1beta1"))

	serve(t, m, "v1", "v1beta1")
	ok(t, m.Create(widget("b", "v1")))
	r.within(12*time.Second, "widgets are held at v1", func() bool {
		info := r.scope(m, widgetKind)
		return info.Version == "shop.example/v1" && info.Status.State == aggregate.Synced && info.Objects == 2
	})
	r.exact(m, widgetsAt("v1"))

	ok(t, m.Delete(crds, "", widgets.String()))
	r.within(5*time.Second, "widgets are known not to be served", func() bool {
		info := r.scope(m, widgetKind)
		return info.Status.State == aggregate.NotServed && info.Objects == 0
	})
	r.until("their scope has gone", func() bool {
		_, there := r.index.Snapshot().Scope(nameOf(m), widgetKind)
		return !there
	})

	serve(t, m, "v1")
	ok(t, m.Create(widget("c", "v1")))
	r.within(5*time.Second, "widgets are followed again", func() bool {
		info := r.scope(m, widgetKind)
		return info.Status.State == aggregate.Synced && info.Objects == 1 && info.Resource == widgets.Resource
	})
}

func TestHeldVersion_SwitchIsOneCommit(t *testing.T) {
	r := follow(t, withCRDs(1), func(r *rig, _ *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		serve(t, m, "v1beta1")
		for _, name := range []string{"a", "b", "c"} {
			ok(t, m.Create(widget(name, "v1beta1")))
		}
	})
	m := r.fleet.Members()[0]
	cursor := r.index.Cursor(r.index.Snapshot())
	serve(t, m, "v1", "v1beta1")
	for {
		b, err := cursor.Next(t.Context())
		ok(t, err)
		seq, err := b.After.List(aggregate.Query{Kind: widgetKind})
		ok(t, err)
		versions := map[string]int{}
		for o := range seq {
			versions[o.APIVersion()]++
		}
		if len(versions) != 1 || versions["shop.example/v1"]+versions["shop.example/v1beta1"] != 3 {
			t.Fatalf("a snapshot has widgets at %v, want three at one version", versions)
		}
		if versions["shop.example/v1"] == 3 {
			return
		}
	}
}

func TestHeldVersion_IsServedByAll(t *testing.T) {
	r := follow(t, withCRDs(2), func(r *rig, _ *clusterinformers.Options) {
		serve(t, r.fleet.Members()[0], "v1", "v1beta1")
		serve(t, r.fleet.Members()[1], "v1beta1", "v1alpha1")
		for _, m := range r.fleet.Members() {
			ok(t, m.Create(widget("a", "v1beta1")))
		}
	})
	both := func(a, b string) func() bool {
		return func() bool {
			for i, want := range []string{a, b} {
				info := r.scope(r.fleet.Members()[i], widgetKind)
				if info.Version != "shop.example/"+want || info.Status != (aggregate.Status{State: aggregate.Synced}) || info.Objects != 1 {
					return false
				}
			}
			return true
		}
	}
	r.until("both hold v1beta1", both("v1beta1", "v1beta1"))
	serve(t, r.fleet.Members()[1], "v1", "v1beta1")
	r.until("both hold v1", both("v1", "v1"))

	// Nothing in common: each its own, and a condition.
	serve(t, r.fleet.Members()[0], "v2")
	serve(t, r.fleet.Members()[1], "v1beta1")
	r.until("each holds its own, and says so", func() bool {
		for i, want := range []string{"v2", "v1beta1"} {
			info := r.scope(r.fleet.Members()[i], widgetKind)
			if info.Version != "shop.example/"+want || info.Status.State != aggregate.Synced || !strings.Contains(info.Status.Reason, "no version in common") {
				return false
			}
		}
		return true
	})

	// A member that leaves no longer counts.
	r.source.set(specOf(t, r.fleet.Members()[0]))
	r.until("the one that stays has no condition", func() bool {
		return r.scope(r.fleet.Members()[0], widgetKind).Status == aggregate.Status{State: aggregate.Synced}
	})
}

func TestHeldVersion_ConfiguredOneWins(t *testing.T) {
	r := follow(t, withCRDs(2), func(r *rig, o *clusterinformers.Options) {
		o.Held = []clusterinformers.HeldVersion{{Kind: widgetKind, Version: "v1beta1"}}
		serve(t, r.fleet.Members()[0], "v1", "v1beta1")
		serve(t, r.fleet.Members()[1], "v1")
	})
	r.until("one holds what is configured, the other says that it cannot", func() bool {
		a, b := r.scope(r.fleet.Members()[0], widgetKind), r.scope(r.fleet.Members()[1], widgetKind)
		return a.Version == "shop.example/v1beta1" && a.Status.Reason == "" &&
			b.Version == "shop.example/v1" && strings.Contains(b.Status.Reason, "v1beta1 is configured but not served")
	})
}

func TestInformer_RecoversFromForbidden(t *testing.T) {
	r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
		fill(t, r.fleet.Members()[0], 10)
		r.fleet.Members()[0].Forbid(secrets)
	}).start()
	m := r.fleet.Members()[0]
	r.untilState(m, "Secret", aggregate.Forbidden)
	r.until("the member is synced but for it", func() bool { return r.status(m).Synced && r.state(m, "Pod") == aggregate.Synced })
	if d := r.detail(m, "Secret"); !strings.Contains(d.Reason, "forbidden") {
		t.Errorf("reason %q does not say so", d.Reason)
	}
	m.Allow(secrets)
	r.untilState(m, "Secret", aggregate.Synced)

	m.Forbid(pods) // the right is taken away while it is followed
	m.DropWatches(pods)
	r.untilState(m, "Pod", aggregate.Forbidden)
	m.Allow(pods)
	r.untilState(m, "Pod", aggregate.Synced)
	r.exact(m, fewKinds().Kinds)
	if got := r.detail(m, "Pod").Relists; got["initial"] != 1 || len(got) != 1 {
		t.Errorf("relists %v, want none after the first: the watch goes on where it was", got)
	}
}

func TestInformer_NotServedWhereAMemberLacksTheKind(t *testing.T) {
	r := follow(t, withCRDs(2), func(r *rig, _ *clusterinformers.Options) { serve(t, r.fleet.Members()[0], "v1") })
	with, without := r.fleet.Members()[0], r.fleet.Members()[1]
	r.untilState(with, widgetKind, aggregate.Synced)
	r.untilState(without, widgetKind, aggregate.NotServed)
	without.Cut() // what discovery said is not fresh any more
	r.untilState(without, widgetKind, aggregate.Unknown)
	ok(t, without.Restore())
	r.untilState(without, widgetKind, aggregate.NotServed)
}

// A discovery that finds nothing new costs the member two answers without a body, and renews what is
// known of it.
func TestDiscovery_IsConditional(t *testing.T) {
	var full, conditional atomic.Int64
	var server *fakeServer
	r := newRig(t, withCRDs(1), func(r *rig, o *clusterinformers.Options) {
		o.DiscoveryInterval = 20 * time.Millisecond
		server = newFakeServer(t, r.fleet.Members()[0], func(_ http.ResponseWriter, req *http.Request) bool {
			switch {
			case req.URL.Path != "/apis":
			case req.Header.Get("If-None-Match") == "":
				full.Add(1)
			default:
				conditional.Add(1)
			}
			return false
		})
		r.source.view = []clusterinformers.Spec{server.spec}
	})
	r.manager.RequireKinds([]aggregate.Kind{"Thing.nobody.example"})
	r.start()
	m := r.fleet.Members()[0]
	r.synced(m)
	settled := func() bool {
		member, _ := r.index.Snapshot().Member(nameOf(m))
		return r.state(m, "Thing.nobody.example") == aggregate.NotServed && len(member.Serves) == 3 && r.all(m, aggregate.Synced, aggregate.NotServed)
	}
	r.until("all is known", settled)
	asked, revision := conditional.Load(), r.index.Snapshot().Revision()
	r.until("it was discovered again", func() bool { return conditional.Load() > asked+5 })
	if n := full.Load(); n != 1 {
		t.Errorf("%d full discoveries of one thing", n)
	}
	if got := r.index.Snapshot().Revision(); got != revision {
		t.Errorf("discoveries that find nothing new have made %d revisions", got-revision)
	}

	m.Cut()
	server.cut()
	r.until("nothing is known to be absent", func() bool { return r.state(m, "Thing.nobody.example") == aggregate.Unknown })
	ok(t, m.Restore())
	r.until("all is known again", settled)
	if n := full.Load(); n != 1 {
		t.Errorf("%d full discoveries of one thing after a cut", n)
	}

	serve(t, m, "v1")
	r.until("the new kind is found", func() bool { return r.state(m, widgetKind) == aggregate.Synced })
	if n := full.Load(); n != 2 {
		t.Errorf("%d full discoveries, want 2: nothing else has changed", n)
	}
}

func TestDiscovery_RetriesSoon(t *testing.T) {
	for _, f := range []sim.Fault{{Status: 503}, {Reset: true}} {
		f.Verb, f.Times = "discovery", 1
		r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) { r.fleet.Members()[0].Faults().Add(f) }).start()
		m := r.fleet.Members()[0]
		r.within(10*time.Second, "the member is synced", func() bool { return r.status(m).Synced })
		r.end()
	}
}

func TestDiscovery_BacksOff(t *testing.T) {
	for _, f := range []sim.Fault{{Status: 503}, {Reset: true}} {
		f.Verb = "discovery"
		r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) { r.fleet.Members()[0].Faults().Add(f) }).start()
		m := r.fleet.Members()[0]
		r.until("discovery was queried", func() bool { return m.Requests().Verb("discovery") > 0 })
		before := m.Requests().Total()
		r.during(time.Second, "few requests", func() bool { return m.Requests().Total()-before < 25 })
		r.end()
	}
}
