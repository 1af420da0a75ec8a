package remediate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/remediate/internal/ledger"
)

func TestLimit_CountsTargetsAndPercentagesSubjects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit             Limit
		n                 ledger.Count
		of                int
		targets, subjects int // that are acknowledged
		max               int // of the tighter bound
		exceeded          int
	}{
		{Limit{Count: 5}, ledger.Count{Targets: 5, Subjects: 1}, 1000, 0, 0, 5, 0},
		{Limit{Count: 5}, ledger.Count{Targets: 6, Subjects: 1}, 1000, 0, 0, 5, 1},
		{Limit{Count: 5}, ledger.Count{Targets: 6, Subjects: 1}, 1000, 6, 0, 5, 0},
		{Limit{Count: 5}, ledger.Count{Targets: 6, Subjects: 1}, 1000, 0, 6, 5, 1},
		{Limit{Percent: 10}, ledger.Count{Targets: 500, Subjects: 100}, 1000, 0, 0, 100, 0},
		{Limit{Percent: 10}, ledger.Count{Targets: 500, Subjects: 101}, 1000, 500, 0, 100, 1},
		{Limit{Percent: 10}, ledger.Count{Targets: 500, Subjects: 101}, 1000, 0, 101, 100, 0},
		{Limit{Percent: 10}, ledger.Count{Targets: 1, Subjects: 1}, 5, 0, 0, 1, 0}, // never none: a fleet of five must be correctable
		{Limit{Count: 50, Percent: 10}, ledger.Count{Targets: 60, Subjects: 20}, 100, 0, 0, 50, 2},
	} {
		u, exceeded := c.limit.use("policy", c.n, c.of, acknowledged{targets: c.targets, subjects: c.subjects})
		if u.Max != c.max || len(exceeded) != c.exceeded {
			t.Errorf("%+v: uses %+v, exceeds %+v", c, u, exceeded)
		}
	}
	for _, l := range []Limits{{Policy: Limit{Count: -1}}, {Member: Limit{Percent: 101}}, {Window: -1}, {Window: 721 * time.Hour}, {PerMinute: -1}, {MaxReversions: -1}} {
		if l.validate() == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}

func TestProtectedEverywhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ref         aggregate.Ref
		annotations map[string]string
		want        bool
	}{
		{aggregate.Ref{Kind: "ClusterRole.rbac.authorization.k8s.io", Name: "x"}, nil, true},
		{aggregate.Ref{Kind: "ValidatingWebhookConfiguration.admissionregistration.k8s.io", Name: "x"}, nil, true},
		{aggregate.Ref{Kind: "CustomResourceDefinition.apiextensions.k8s.io", Name: "x"}, nil, true},
		{aggregate.Ref{Kind: "APIService.apiregistration.k8s.io", Name: "x"}, nil, true},
		{aggregate.Ref{Kind: "Namespace", Name: "shop"}, nil, true},
		{aggregate.Ref{Kind: "ConfigMap", Namespace: "kube-system", Name: "coredns"}, nil, true},
		{aggregate.Ref{Kind: "FleetPolicy.federator.dev", Name: "x"}, nil, true},
		{aggregate.Ref{Kind: "Cluster.cluster.x-k8s.io", Namespace: "a", Name: "x"}, nil, true},
		{aggregate.Ref{Kind: "MachineDeployment.infrastructure.cluster.x-k8s.io", Namespace: "a", Name: "x"}, nil, true},
		{aggregate.Ref{Kind: "ConfigMap", Namespace: "shop", Name: "x"}, map[string]string{protectAnnotation: ""}, true},
		{aggregate.Ref{Kind: "ConfigMap", Namespace: "shop", Name: "x"}, map[string]string{"other": "x"}, false},
		{aggregate.Ref{Kind: "Namespace.example.com", Name: "x"}, nil, false},
		{aggregate.Ref{Kind: "Deployment.apps", Namespace: "shop", Name: "web"}, nil, false},
	} {
		if got := protectedEverywhere(c.ref, c.annotations); (got != "") != c.want {
			t.Errorf("%s: %q, want protected: %v", c.ref, got, c.want)
		}
	}
}

func TestProtection_AddsToWhatIsProtectedAnyway(t *testing.T) {
	t.Parallel()
	p := Protection{Kinds: []string{"Secret", "*.cert-manager.io", "Service*.apps"}, Namespaces: []string{"*-system", "payments"}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ref  aggregate.Ref
		want string
	}{
		{aggregate.Ref{Kind: "Secret", Namespace: "shop", Name: "x"}, "kind Secret"},
		{aggregate.Ref{Kind: "SecretStore.example.com", Namespace: "shop", Name: "x"}, ""},
		{aggregate.Ref{Kind: "Certificate.cert-manager.io", Namespace: "shop", Name: "x"}, "kind Certificate"},
		{aggregate.Ref{Kind: "Certificate.xcert-manager.io", Namespace: "shop", Name: "x"}, ""},
		{aggregate.Ref{Kind: "ServiceThing.apps", Namespace: "shop", Name: "x"}, "kind ServiceThing.apps"},
		{aggregate.Ref{Kind: "Deployment.apps", Namespace: "istio-system", Name: "x"}, "namespace istio-system"},
		{aggregate.Ref{Kind: "Deployment.apps", Namespace: "system", Name: "x"}, ""},
		{aggregate.Ref{Kind: "Deployment.apps", Namespace: "payments", Name: "x"}, "namespace payments"},
		{aggregate.Ref{Kind: "Node", Name: "x-system"}, ""},
		{aggregate.Ref{Kind: "ConfigMap", Namespace: "kube-system", Name: "x"}, "kube-system"},
	} {
		if got := p.protected(c.ref, nil); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.ref, got, c.want)
		}
	}
	for _, bad := range []Protection{{Kinds: []string{""}}, {Kinds: []string{"a b"}}, {Namespaces: []string{"[a"}}, {Namespaces: []string{"a/b"}}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
}

func TestMetrics_BudgetsAreOfMembersWithTheLeastRemaining(t *testing.T) {
	t.Parallel()
	list := []BudgetUsage{{Scope: "policy", Max: 100}, {Scope: "fleet", Max: 1000}, {Scope: "fleet", Max: 500}}
	for n := range 30 {
		list = append(list, BudgetUsage{Scope: fmt.Sprintf("fleet/m-%02d", n), Max: 30, Targets: n})
	}
	shown := map[string]int{}
	for _, u := range shownBudgets(list) {
		shown[u.Scope] = u.Max
	}
	if len(shown) != 2+maxShownMembers || shown["policy"] != 100 || shown["fleet"] != 500 {
		t.Errorf("shown: %v", shown)
	}
	for n := range 30 {
		if _, is := shown[fmt.Sprintf("fleet/m-%02d", n)]; is != (n >= 10) {
			t.Errorf("the member with %d of 30 targets is shown: %t", n, is)
		}
	}
}
