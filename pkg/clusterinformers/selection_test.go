package clusterinformers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

func TestKindRule_Selection(t *testing.T) {
	rule := func(r clusterinformers.KindRule) []clusterinformers.KindRule {
		return []clusterinformers.KindRule{r, {Kind: "Namespace"}}
	}
	for _, tt := range []struct {
		name  string
		rules []clusterinformers.KindRule
		state aggregate.State
		says  string
		want  func(i int) bool // of which pods are held
	}{
		{"exclude", []clusterinformers.KindRule{{Kind: "Pod", Exclude: true}, {Kind: "*"}}, aggregate.Unknown, "", func(int) bool { return false }},
		{"everything", []clusterinformers.KindRule{{Kind: "*"}}, aggregate.Synced, "", func(int) bool { return true }},
		{"by name", rule(clusterinformers.KindRule{Kind: "Pod"}), aggregate.Synced, "", func(int) bool { return true }},
		{"one namespace", rule(clusterinformers.KindRule{Kind: "Pod", Namespaces: []string{"shop"}}), aggregate.Partial, "only namespaces shop", func(i int) bool { return pod(i).Namespace == "shop" }},
		{"namespaces", rule(clusterinformers.KindRule{Kind: "Pod", Namespaces: []string{"shop", "ops"}}), aggregate.Partial, "only namespaces shop,ops", func(i int) bool { return pod(i).Namespace != "default" }},
		{"labels", rule(clusterinformers.KindRule{Kind: "Pod", Labels: "app in (a1,a2)"}), aggregate.Partial, "only labels app in (a1,a2)", func(i int) bool { return i%7 == 1 || i%7 == 2 }},
		{"fields", rule(clusterinformers.KindRule{Kind: "Pod", Fields: "metadata.name=pod-7"}), aggregate.Partial, "only fields metadata.name=pod-7", func(i int) bool { return i == 7 }},
		{"drop", rule(clusterinformers.KindRule{Kind: "Pod", Drop: []string{"status", "spec.nodeName"}}), aggregate.Partial, "without status,spec.nodeName", func(int) bool { return true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
				o.Kinds = tt.rules
				fill(t, r.fleet.Members()[0], 12)
			})
			m := r.fleet.Members()[0]
			check := func(n int) {
				t.Helper()
				var want []string
				for i := range n {
					if tt.want(i) {
						want = append(want, pod(i).Namespace+"/"+pod(i).Name)
					}
				}
				slices.Sort(want)
				r.until(fmt.Sprint(want), func() bool {
					var got []string
					for _, line := range r.held(m, "Pod") {
						got = append(got, line[:strings.IndexByte(line, ' ')])
					}
					return slices.Equal(got, want)
				})
			}
			check(12)
			if st := r.scope(m, "Pod").Status; st != (aggregate.Status{State: tt.state, Reason: tt.says}) {
				t.Errorf("status %+v, want %s %q", st, tt.state, tt.says)
			}
			if tt.name == "drop" {
				for _, line := range r.held(m, "Pod") {
					if strings.Contains(line, "status") || strings.Contains(line, "nodeName") || !strings.Contains(line, "shop/web:1") {
						t.Errorf("dropped fields, and only they, are gone: %s", line)
					}
				}
			}
			for i := 12; i < 30; i++ { // and so for what comes later
				ok(t, m.Create(pod(i)))
			}
			check(30)
			// A list of one namespace leaves the others alone.
			m.Faults().Add(sim.Fault{Verb: "watch", Kind: pods, Status: 410, Times: 1})
			m.DropWatches(pods)
			r.until("rest", func() bool { return r.state(m, "Pod") == tt.state })
			check(30)
		})
	}
}

func TestKindRule_NamespacesDoNotNarrowClusterScopedKinds(t *testing.T) {
	r := follow(t, fewKinds(), func(_ *rig, o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{{Kind: "*", Namespaces: []string{"shop"}}}
	})
	m := r.fleet.Members()[0]
	if st := r.scope(m, "Namespace"); st.Status != (aggregate.Status{State: aggregate.Synced}) || st.Objects != 4 {
		t.Errorf("Namespace: %+v, want all of them, Synced", st)
	}
	if st := r.scope(m, "Pod").Status; st.State != aggregate.Partial {
		t.Errorf("Pod: %+v, want Partial", st)
	}
}

func TestKindRule_NoisyKindsOnlyWhenNamed(t *testing.T) {
	opts := sim.Options{Members: 1, Kinds: kindsOf("Namespace", "Event", "Lease")}
	r := follow(t, opts, func(_ *rig, o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{{Kind: "Event"}, {Kind: "*"}}
	})
	m := r.fleet.Members()[0]
	// Partial, since the oldest leave after a while.
	if st := r.scope(m, "Event").Status; st.State != aggregate.Partial {
		t.Errorf("Event was named and is %+v", st)
	}
	if _, there := r.index.Snapshot().Scope(nameOf(m), "Lease.coordination.k8s.io"); there {
		t.Error("Lease was not named and is followed")
	}
}
