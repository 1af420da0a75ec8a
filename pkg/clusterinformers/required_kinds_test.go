package clusterinformers_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/discovery"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/sim"
)

func TestRequiredKinds_ServedByNobodyAreEmpty(t *testing.T) {
	rules := []clusterinformers.KindRule{{Kind: "Namespace"}, {Kind: "CustomResourceDefinition.apiextensions.k8s.io"}, {Kind: string(widgetKind)}}
	for name, tt := range map[string]struct {
		rules  []clusterinformers.KindRule
		wanted []aggregate.Kind
	}{
		"wanted":          {nil, []aggregate.Kind{widgetKind}},
		"named by a rule": {rules, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, withCRDs(2), func(_ *rig, o *clusterinformers.Options) { o.Kinds = tt.rules })
			r.manager.RequireKinds(tt.wanted)
			r.start()
			a, b := r.fleet.Members()[0], r.fleet.Members()[1]
			for _, m := range r.fleet.Members() {
				r.synced(m)
				r.untilState(m, widgetKind, aggregate.NotServed)
			}
			a.Cut() // what discovery said is not fresh any more
			r.untilState(a, widgetKind, aggregate.Unknown)
			ok(t, a.Restore())
			r.untilState(a, widgetKind, aggregate.NotServed)

			serve(t, a, "v1")
			ok(t, a.Create(widget("x", "v1")))
			r.until("the widget is there", func() bool { return len(r.held(a, widgetKind)) == 1 })
			if got := r.state(b, widgetKind); got != aggregate.NotServed {
				t.Errorf("%s in the other member", got)
			}
		})
	}
}

// TestManager_AppliedIsWhatTheIndexHas: a reader that finds an object missing knows whether
// it has been read.
func TestManager_AppliedIsWhatTheIndexHas(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{{Kind: "Namespace"}, {Kind: "Pod", Drop: []string{"status"}}}
		fill(t, r.fleet.Members()[0], 10)
	})
	m := r.fleet.Members()[0]
	r.until("all that is held is applied", func() bool {
		applied := r.manager.Applied(nameOf(m), "Pod")
		held := r.held(m, "Pod")
		for _, line := range held {
			if order, err := resourceversion.CompareResourceVersion(applied, strings.Fields(line)[2]); err != nil || order < 0 {
				return false
			}
		}
		return len(held) == 10
	})
	if got := r.manager.Applied("nobody/here", "Pod") + r.manager.Applied(nameOf(m), widgetKind); got != "" {
		t.Errorf("of what is not followed: %q", got)
	}
	if got := fmt.Sprint(r.manager.Dropped("Pod"), r.manager.Dropped("Namespace")); got != "[status] []" {
		t.Errorf("dropped %s", got)
	}
}

func TestRequiredKinds_AreHeldWhileRequired(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{
			{Kind: "Namespace"}, {Kind: "ConfigMap", Namespaces: []string{"default"}}, {Kind: "Secret", Exclude: true},
		}
		fill(t, r.fleet.Members()[0], 10)
	})
	m := r.fleet.Members()[0]
	if _, there := r.index.Snapshot().Scope(nameOf(m), "Pod"); there {
		t.Fatal("Pods are there before anybody wants them")
	}
	r.manager.RequireKinds([]aggregate.Kind{"Pod", "ConfigMap", "Secret", widgetKind})
	r.untilState(m, "Pod", aggregate.Synced)
	r.exact(m, kindsOf("Pod"))
	r.untilState(m, widgetKind, aggregate.NotServed)
	if got := r.state(m, "ConfigMap"); got != aggregate.Partial {
		t.Errorf("a kind that a rule narrows is %s", got)
	}
	if info, there := r.index.Snapshot().Scope(nameOf(m), "Secret"); there {
		t.Errorf("a kind that is excluded has a scope: %+v", info)
	}

	lists := r.lists(m, pods)
	r.manager.RequireKinds([]aggregate.Kind{"Pod"})
	r.until("nothing is left of the kind that is not served", func() bool {
		_, there := r.index.Snapshot().Scope(nameOf(m), widgetKind)
		return !there && r.detail(m, widgetKind).Kind == ""
	})
	if n := r.lists(m, pods); n != lists {
		t.Errorf("%d more lists of a kind that stays wanted", n-lists)
	}
	r.manager.RequireKinds(nil)
	r.until("Pods are gone", func() bool {
		_, there := r.index.Snapshot().Scope(nameOf(m), "Pod")
		return !there && len(r.held(m, "Pod")) == 0
	})
	if len(r.held(m, "ConfigMap")) != 10 {
		t.Error("what a rule names is gone with what was wanted")
	}
	r.manager.RequireKinds([]aggregate.Kind{"Pod"})
	r.untilState(m, "Pod", aggregate.Synced)
	r.exact(m, kindsOf("Pod"))
}

func TestRequiredKinds_NotServedOnlyAfterADiscovery(t *testing.T) {
	r := follow(t, withCRDs(1), nil)
	m := r.fleet.Members()[0]
	lift := m.Faults().Add(sim.Fault{Verb: "discovery", Status: 503})
	r.manager.RequireKinds([]aggregate.Kind{widgetKind})
	r.until("discovery is queried again", func() bool { return m.Faults().Seen() > 0 })
	if st := r.scope(m, widgetKind).Status; st.State != aggregate.Unknown {
		t.Errorf("%+v while discovery fails", st)
	}
	lift()
	r.within(5*time.Second, "the kind is known not to be served", func() bool { return r.state(m, widgetKind) == aggregate.NotServed })
	if got := r.detail(m, widgetKind); got.State != aggregate.NotServed || got.Reason != "" {
		t.Errorf("%+v", got)
	}
}

// An aggregated API server that is down is registered by an APIService; until it
// has answered once nobody knows what it serves.
func TestRequiredKinds_UnknownWhileTheirGroupIsUnavailable(t *testing.T) {
	c := kube.StartTest(t, kube.Options{NoHub: true, Members: 1}).Members[0]
	ok(t, c.Apply(t.Context(), []byte(`apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.silent.example}
spec:
  group: silent.example
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: default, name: nowhere}
`)))
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	ok(t, err)
	eventually(t, func() bool {
		_, _, err := c.Client().Discovery().ServerGroupsAndResources()
		return discovery.IsGroupDiscoveryFailedError(err)
	})
	spec := clusterinformers.Spec{Name: "fleet/a", UID: "a", Kubeconfig: c.Kubeconfig(), Trusted: true}
	r := &rig{t: t, index: index, log: journal{slog.NewTextHandler(t.Output(), nil), &journalState{lines: map[string]int{}, fatal: map[string]int{}}}}
	r.manager, err = clusterinformers.New(clusterinformers.Options{
		Index: index, Sources: []clusterinformers.Source{newFixed(spec)}, Logger: slog.New(r.log),
		Kinds: []clusterinformers.KindRule{{Kind: "Namespace"}},
	})
	ok(t, err)
	r.manager.RequireKinds([]aggregate.Kind{"Thing.silent.example", "Thing.nobody.example"})
	r.start()
	status := func(kind aggregate.Kind) aggregate.Status {
		info, _ := index.Snapshot().Scope(spec.Name, kind)
		return info.Status
	}
	r.until("both kinds have a status", func() bool {
		return status("Thing.nobody.example").State == aggregate.NotServed && status("Thing.silent.example") != aggregate.Status{}
	})
	if st := status("Thing.silent.example"); st.State != aggregate.Unknown || !strings.Contains(st.Reason, "discovery of the API group fails") {
		t.Errorf("%+v of a group whose server is down", st)
	}
}

// eventually waits for a condition of a test that has no rig yet.
func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !cond(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited in vain")
		}
	}
}
