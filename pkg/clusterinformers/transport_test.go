package clusterinformers_test

import (
	"testing"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/h2test"
	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
	"federator.dev/federator/test/sim"
)

// A member that violates HTTP/2 again and again is reached by net/http, counted and shown.
func TestTransport_ViolatorsAreReachedByNetHTTP(t *testing.T) {
	for _, stock := range []bool{false, true} {
		r := newRig(t, sim.Options{Members: 1, Kinds: kindsOf("Namespace")}, func(r *rig, o *clusterinformers.Options) {
			r.source.view = []clusterinformers.Spec{{
				Name: "fleet/liar", UID: "liar", Trusted: true, Kubeconfig: kubeconfigtest.New(t, h2test.Overlong(t), nil),
			}}
			o.StockTransport = stock
		}).start()
		status := func() clusterinformers.MemberStatus {
			if all := r.manager.Members(); len(all) == 1 {
				return all[0]
			}
			return clusterinformers.MemberStatus{}
		}
		if stock {
			r.until("it has answered", func() bool { return status().Version != "" || status().Error != "" || status().Message != "" })
		} else {
			r.until("it is reached by net/http", func() bool { return status().Transport != "" })
		}
		if got := status().Transport; stock != (got == "") {
			t.Errorf("stock is configured: %t; the status says %q", stock, got)
		}
		families, err := r.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		violations := 0.0
		for _, f := range families {
			if f.GetName() == "federator_member_protocol_errors_total" {
				violations = f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		if stock != (violations == 0) {
			t.Errorf("stock is configured: %t; %v violations are counted", stock, violations)
		}
		r.end()
	}
}

// TestMember_WithAnAgentIsRefusedWhereNoneConnect: the configuration has to be changed.
func TestMember_WithAnAgentIsRefusedWhereNoneConnect(t *testing.T) {
	r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
		r.source.view = []clusterinformers.Spec{{Name: "fleet/edge", UID: "uid", Agent: true}}
	}).start()
	r.until("it is refused", func() bool {
		all := r.manager.Members()
		return len(all) == 1 && all[0].State == connection.Refused && all[0].Reason == connection.NoAgents
	})
	r.until("nobody waits for it", func() bool { ready, _ := r.manager.Ready(); return ready })
}
