package policy_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// library loads packages of the library.
func library(t *testing.T, files ...string) *policy.Set {
	t.Helper()
	var src policy.Source
	for _, f := range files {
		text, err := os.ReadFile("../../policies/" + f)
		if err != nil {
			t.Fatal(err)
		}
		src.Files = append(src.Files, policy.File{Path: f, Data: text})
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func ingressOf(member, namespace, name string, hosts ...string) op {
	rules := []any{}
	for _, h := range hosts {
		rules = append(rules, map[string]any{"host": h})
	}
	return op{
		Do: "put", Member: member, Kind: "Ingress.networking.k8s.io", NS: namespace, Name: name,
		Object: map[string]any{"spec": map[string]any{"rules": rules}},
	}
}

// TestEngine_FailedContributionIsAGap has one member put an Ingress of more hosts than one
// object may contribute. What others have found stays, as Unknown; who tolerates the
// member has Known verdicts; and the health says which object it is and what ends it.
func TestEngine_FailedContributionIsAGap(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"fleet/a", "fleet/b"} {
		mustDo(t, w, op{Do: "reopen", Member: m, Kind: "HTTPRoute.gateway.networking.k8s.io", Version: "gateway.networking.k8s.io/v1", State: aggregate.NotServed})
	}
	mustDo(t, w, ingressOf("fleet/a", "shop", "one", "a.example"), ingressOf("fleet/a", "pay", "two", "a.example"), ingressOf("fleet/a", "pay", "alone"))
	set := library(t, "network/unique_host/unique_host.rego", "lib/members/members.rego")
	const name = "federator.network.unique_host"
	strict := bindingsOf(set)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: strict})
	if got := e.State().Total(name); got != (policy.Counts{Known: 3, Violations: 2}) {
		t.Fatalf("before: %+v", got)
	}
	var hosts []string
	for i := range 12_000 {
		hosts = append(hosts, fmt.Sprintf("host-%05d.tenant.example", i))
	}
	big := ingressOf("fleet/b", "tenant", "big", hosts...)
	mustDo(t, w, big)
	changes := apply(t, e, cursor)
	// The one without a host has not looked at the view.
	if got := e.State().Total(name); got != (policy.Counts{Known: 1, Unknown: 3, Violations: 2}) {
		t.Errorf("with an object that cannot contribute: %+v", got)
	}
	for c := range changes.All() {
		if c.After == nil || len(c.After.Violations) != 1 || c.After.State != policy.Unknown {
			t.Errorf("%s becomes %+v", c.Before.Subject, c.After)
		}
	}
	one := policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Ingress.networking.k8s.io", Namespace: "shop", Name: "one"}}
	v, _ := e.State().Get(name, one)
	if len(v.Gaps) != 1 || v.Gaps[0].Member != "fleet/b" || v.Gaps[0].Kind != "Ingress.networking.k8s.io" {
		t.Fatalf("gaps: %+v", v.Gaps)
	}
	h, _ := e.State().Health(name)
	if !slices.Equal(h.Failures, v.Gaps) {
		t.Errorf("the health names %+v", h.Failures)
	}
	for _, text := range []string{v.Gaps[0].String(), h.Problem()} {
		if !strings.Contains(text, "fleet/b Ingress.networking.k8s.io tenant/big: ") || !strings.Contains(text, "more than 262144 bytes") {
			t.Errorf("%q names no object and no reason", text)
		}
	}
	if want := `tolerate gaps of member "fleet/b"`; !strings.Contains(h.Problem(), want) {
		t.Errorf("%q does not say what ends it", h.Problem())
	}

	tolerant := slices.Clone(strict)
	tolerant[0].Tolerate = &policy.MemberSelector{Names: []string{"fleet/b"}}
	if _, err := e.Configure(t.Context(), set, tolerant); err != nil {
		t.Fatal(err)
	}
	if got := e.State().Total(name); got != (policy.Counts{Known: 4, Violations: 2}) {
		t.Errorf("tolerating the member: %+v", got)
	}
	if h, _ := e.State().Health(name); h.Problem() != "" || len(h.Failures) > 0 {
		t.Errorf("tolerating the member: %q", h.Problem())
	}
	blind := slices.Clone(strict)
	blind[0].Visibility = policy.MemberSelector{Names: []string{"fleet/a"}}
	if _, err := e.Configure(t.Context(), set, blind); err != nil {
		t.Fatal(err)
	}
	if got := e.State().Total(name); got != (policy.Counts{Known: 4, Violations: 2}) {
		t.Errorf("without sight of the member: %+v", got)
	}

	if _, err := e.Configure(t.Context(), set, strict); err != nil {
		t.Fatal(err)
	}
	big.Do = "delete"
	mustDo(t, w, big)
	apply(t, e, cursor)
	if got := e.State().Total(name); got != (policy.Counts{Known: 3, Violations: 2}) {
		t.Errorf("when the object is gone: %+v", got)
	}
}

// TestHealth_NamesEveryMemberWithFailedContributions has many objects of several members
// fail: a verdict names each member once, and counts no object.
func TestHealth_NamesEveryMemberWithFailedContributions(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		mustDo(t, w, deployment("fleet/b", fmt.Sprintf("x%d", i), map[string]any{"app": "odd", "replicas": i}))
	}
	mustDo(t, w, deployment("fleet/a", "x", map[string]any{"app": "odd", "replicas": 1}), deployment("fleet/a", "y", map[string]any{"app": "shop", "replicas": 1}))
	set := load(t, oraclePolicies["odd"])
	s, err := policy.Evaluate(t.Context(), policy.EngineOptions{Set: set, Bindings: bindingsOf(set)}, w.index.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	v, _ := s.Get("oracle.odd", policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "y"}})
	if v.State != policy.Unknown || len(v.Violations) != 1 || len(v.Gaps) != 2 || v.Gaps[0].Member != "fleet/a" || v.Gaps[1].Member != "fleet/b" {
		t.Errorf("%+v", v)
	}
}
