package clusterinformers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

var events = schema.GroupResource{Resource: "events"}

func happened(i int) *corev1.Event {
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("e%03d", i)},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"}, Reason: "Started", Message: "it has started",
	}
}

func eventful() sim.Options {
	return sim.Options{Members: 1, Kinds: kindsOf("Namespace", "ConfigMap", "Event")}
}

// names are those of a kind in the index.
func (r *rig) names(m *sim.Member, kind aggregate.Kind) []string {
	r.t.Helper()
	list, err := r.index.Snapshot().List(aggregate.Query{Kind: kind, Members: []string{nameOf(m)}})
	ok(r.t, err)
	var names []string
	for o := range list {
		names = append(names, o.Name())
	}
	return names
}

// TestEvents_AreWithinTheirShareOfTheBudget: the newest stay, listed or watched, and
// the member's other kinds have their room.
func TestEvents_AreWithinTheirShareOfTheBudget(t *testing.T) {
	const most, before, all = 20, 60, 150
	r := follow(t, eventful(), func(r *rig, o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{{Kind: "Event"}, {Kind: "*"}}
		o.Budget = clusterinformers.Budget{Objects: 10 * most}
		m := r.fleet.Members()[0]
		for i := range before {
			ok(t, m.Create(happened(i)))
		}
		for i := range most {
			ok(t, m.Create(configMap(i)))
		}
	})
	m := r.fleet.Members()[0]
	newest := func(n int) []string {
		var out []string
		for i := n - most; i < n; i++ {
			out = append(out, happened(i).Name)
		}
		return out
	}
	r.until("the newest of those that were there are held", func() bool { return slices.Equal(r.names(m, "Event"), newest(before)) })
	for i := before; i < all; i++ {
		ok(t, m.Create(happened(i)))
	}
	r.until("the newest of those that came are held", func() bool { return slices.Equal(r.names(m, "Event"), newest(all)) })
	if st := r.scope(m, "Event").Status; st.State != aggregate.Partial || !strings.Contains(st.Reason, "1h0m0s") || !strings.Contains(st.Reason, "10%") {
		t.Errorf("the scope does not say what it lacks: %+v", st)
	}
	if got := r.state(m, "ConfigMap"); got != aggregate.Synced || len(r.held(m, "ConfigMap")) != most {
		t.Errorf("ConfigMaps are %s", got)
	}

	// What changes again is new again, and what is gone is gone.
	ok(t, m.Modify(events, "default", happened(all-most).Name, func(o sim.Object) { o.SetLabels(map[string]string{"again": "true"}) }))
	ok(t, m.Create(happened(all)))
	ok(t, m.Delete(events, "default", happened(all-1).Name))
	want := append(newest(all)[:1], newest(all)[2:most-1]...)
	want = append(want, happened(all).Name)
	r.until("changes and deletions are followed", func() bool { return slices.Equal(r.names(m, "Event"), want) })
	m.Cut()
	for i := all + 1; i < all+5; i++ {
		ok(t, m.Create(happened(i)))
	}
	m.Compact(events)
	ok(t, m.Restore()) // the next list has what was dropped, too
	r.until("a list does not bring back more than the share", func() bool {
		names := r.names(m, "Event")
		return r.detail(m, "Event").Relists["expired"] > 0 && len(names) == most && names[most-1] == happened(all+4).Name
	})
}

// TestEvents_LeaveAfterTheirTime, though the member still has them.
func TestEvents_LeaveAfterTheirTime(t *testing.T) {
	r := follow(t, eventful(), func(r *rig, o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{{Kind: "Event", TTL: time.Second}, {Kind: "*"}}
		ok(t, r.fleet.Members()[0].Create(configMap(0)))
	})
	m := r.fleet.Members()[0]
	began := time.Now()
	ok(t, m.Create(happened(0)))
	r.until("the event is held", func() bool { return len(r.names(m, "Event")) == 1 || time.Since(began) > time.Second })
	r.until("the event has left", func() bool { return len(r.names(m, "Event")) == 0 })
	if time.Since(began) < time.Second {
		t.Error("the event has left before its time")
	}
	ok(t, m.Modify(events, "default", happened(0).Name, func(o sim.Object) { o.SetLabels(map[string]string{"again": "true"}) }))
	r.until("an event that happens again is back", func() bool { return len(r.names(m, "Event")) == 1 })
	if len(r.held(m, "ConfigMap")) != 1 {
		t.Error("what has no TTL has left, too")
	}
}

// TestAudit_FindsLossesOfWhatARuleKeeps: what a rule does not keep is no loss, and what it keeps and was lost is.
func TestAudit_FindsLossesOfWhatARuleKeeps(t *testing.T) {
	r, l := followLossy(t, func(o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{{Kind: "Pod", Share: 10}, {Kind: "*"}}
		o.Budget.Objects = 200
	})
	m := r.fleet.Members()[0]
	if got := r.audited("Pod")["Pod"]; got.Outcome != "equal" || len(r.held(m, "Pod")) != 20 {
		t.Fatalf("20 of 30 are to be held, and %d are; the audit says %+v", len(r.held(m, "Pod")), got)
	}
	l.dropAll()
	ok(t, m.Create(pod(100)))
	r.until("a bookmark has come", func() bool { return r.detail(m, "Pod").Applied == m.ResourceVersion() })
	l.set(nil)
	if got := r.audited("Pod")["Pod"]; got.Outcome != "different" || got.Differences["missing"] != 1 {
		t.Errorf("an addition was lost, and the audit says %+v", got)
	}
	if got := r.audited("Pod")["Pod"]; got.Outcome != "equal" {
		t.Errorf("it was repaired, and the audit says %+v", got)
	}
}
