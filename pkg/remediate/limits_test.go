package remediate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/remediate/internal/ledger"
)

type recordedWrite struct {
	binding string
	target  aggregate.Ref
	at      time.Time
}

// TestLedger_EqualsModel compares the ledger with a plain list of writes.
func TestLedger_EqualsModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		fleet := Limit{Count: r.IntN(12)}
		l := ledger.New(2 * time.Hour)
		limits := Limits{Window: time.Hour, Policy: Limit{Count: r.IntN(6), Percent: float64(r.IntN(3) * 20)}, Member: Limit{Count: r.IntN(4), Percent: float64(r.IntN(2) * 30)}, PerMinute: r.IntN(4)}
		of := Totals{Fleet: 10, Members: map[string]int{"m0": 4, "m1": 6}}
		var list []recordedWrite
		writing := map[aggregate.Ref]string{}
		now := time.Unix(0, 0)
		for range 60 {
			now = now.Add(time.Duration(r.IntN(900)) * time.Second)
			binding := fmt.Sprint("b", r.IntN(2))
			target := aggregate.Ref{Member: fmt.Sprint("m", r.IntN(2)), Kind: "ConfigMap", Name: fmt.Sprint(r.IntN(5))}
			switch r.IntN(7) {
			case 0:
				l.Prune(now, func(string) time.Duration { return limits.Window })
			case 1:
				l.BeginWrite(binding, target)
				writing[target] = binding
			case 2:
				l.EndWrite(target)
				delete(writing, target)
			default:
				l.RecordWrite(binding, target, now)
				list = append(list, recordedWrite{binding, target, now})
			}
			pending := []aggregate.Ref{{Member: "m0", Kind: "ConfigMap", Name: fmt.Sprint(r.IntN(8))}, {Member: "m1", Kind: "ConfigMap", Name: fmt.Sprint(r.IntN(8))}}[:r.IntN(3)]
			check := limitCheck{policy: binding, limits: limits, fleet: fleet, totals: of}
			_, err := check.check(l, pending, now)
			if want := overLimit(list, writing, binding, fleet, limits, of, pending, now); (err != nil) != want {
				t.Fatalf("seed %d: %v, want over a limit: %v", seed, err, want)
			}
			var over *overLimitError
			if err != nil && (!errors.As(err, &over) || over.Targets <= over.Max) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

func overLimit(list []recordedWrite, writing map[aggregate.Ref]string, binding string, fleet Limit, limits Limits, of Totals, pending []aggregate.Ref, now time.Time) bool {
	policy, all := map[aggregate.Ref]bool{}, map[aggregate.Ref]bool{}
	for _, w := range list {
		if w.binding == binding && now.Sub(w.at) < limits.Window {
			policy[w.target], all[w.target] = true, true
		}
		if now.Sub(w.at) < 2*time.Hour {
			all[w.target] = true
		}
	}
	for target, by := range writing {
		all[target] = true
		if by == binding {
			policy[target] = true
		}
	}
	for _, target := range pending {
		policy[target], all[target] = true, true
	}
	over := !limits.Policy.unlimited() && len(policy) > limits.Policy.allowed(of.Fleet)
	for member, n := range of.Members {
		affected := 0
		for target := range policy {
			if target.Member == member {
				affected++
			}
		}
		over = over || affected > 0 && !limits.Member.unlimited() && affected > limits.Member.allowed(n)
	}
	return over || !fleet.unlimited() && len(all) > fleet.allowed(of.Fleet)
}

func TestLimit_CountAndPercent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit Limit
		of    int
		want  int
	}{
		{Limit{Count: 5}, 1000, 5},
		{Limit{Percent: 10}, 1000, 100},
		{Limit{Percent: 10}, 5, 1}, // never none: a fleet of five must be correctable
		{Limit{Count: 5, Percent: 10}, 1000, 5},
		{Limit{Count: 50, Percent: 10}, 100, 10},
		{Limit{Percent: 100}, 7, 7},
	} {
		if got := c.limit.allowed(c.of); got != c.want {
			t.Errorf("%+v of %d allows %d, want %d", c.limit, c.of, got, c.want)
		}
	}
	for _, l := range []Limits{{Policy: Limit{Count: -1}}, {Member: Limit{Percent: 101}}, {Window: -1}, {PerMinute: -1}} {
		if l.validate() == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}

func TestProtected(t *testing.T) {
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
		if got := Protected(c.ref, c.annotations); (got != "") != c.want {
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
