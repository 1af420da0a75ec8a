package policy_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

const anyKindTemplate = `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: anything}
spec:
  crd: {spec: {names: {kind: Anything}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package anything
      violation[{"msg": "m"}] { true }
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Anything
metadata: {name: all}
spec: {match: {kinds: [{apiGroups: GROUPS, kinds: ['*']}]}}
`

// TestGatekeeper_AllKindsOfGroups: of the core group too, and of none that no API server has.
func TestGatekeeper_AllKindsOfGroups(t *testing.T) {
	for groups, want := range map[string][]aggregate.Kind{
		"['']":             {"Namespace", "Pod"},
		"[apps]":           {"Deployment.apps"},
		"['', apps]":       {"Deployment.apps", "Namespace", "Pod"},
		"['apps*', 'A b']": nil,
		"[apps, 'apps*']":  {"Deployment.apps"},
		"['*', apps]":      {"Deployment.apps", "Ingress.networking.k8s.io", "Namespace", "Pod"},
	} {
		text := strings.Replace(anyKindTemplate, "GROUPS", groups, 1)
		set, err := policy.Load([]policy.Source{{Name: "t", Files: []policy.File{{Path: "t.yaml", Data: []byte(text)}}}}, policy.LoadOptions{})
		if err != nil {
			t.Errorf("%s: %v", groups, err)
			continue
		}
		p := set.Packages[0]
		all := []aggregate.Kind{"Deployment.apps", "Ingress.networking.k8s.io", "Namespace", "Pod"}
		if got := p.Evaluates().Among(slices.Values(all)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", groups, got, want)
		}
		for _, group := range p.Evaluates().Groups {
			if group != "" && len(validation.IsDNS1123Subdomain(group)) > 0 {
				t.Errorf("%s: group %q", groups, group)
			}
		}
	}
}

// TestEngine_GapsOfAGroup: a member that does not serve a kind of the group is complete, one that was never reached is not.
func TestEngine_GapsOfAGroup(t *testing.T) {
	set := loadSourcesOf(t, []string{`# METADATA
# title: T
# custom: {severity: low, kinds: ["*.apps"]}
package test.group

view.kinds[input.ref.kind] contains input.ref.name

violation contains {"msg": "m"} if count(data.fleet.views["test.group"].kinds) > 1
`})
	w := versionWorld(t)
	one, two := worldMembers[0], worldMembers[1]
	serve := func(member string, kinds ...aggregate.Kind) {
		m, _ := w.index.Snapshot().Member(member)
		m.Serves = kinds
		if err := w.index.PutMember(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range worldMembers {
		serve(m, "Deployment.apps", "Widget.shop.example")
	}
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{{Name: "test.group", Package: "test.group"}}})
	states := func(when string, want policy.VerdictState) {
		t.Helper()
		apply(t, e, cursor)
		n := e.State().Total("test.group")
		if got := map[bool]policy.VerdictState{true: policy.Unknown, false: policy.Known}[n.Unknown > 0]; got != want || n.Known+n.Unknown == 0 {
			t.Errorf("%s: %s, %+v", when, got, n)
		}
		if unread := e.State().Unread("test.group"); (len(unread) > 0) != (want == policy.Unknown) {
			t.Errorf("%s: unread %v", when, unread)
		}
	}
	mustDo(t, w, op{Do: "reopen", Member: one, Kind: "Widget.shop.example", Version: "shop.example/v1", State: aggregate.Syncing})
	states("a kind of another group", policy.Known)
	serve(one, "Deployment.apps", "StatefulSet.apps")
	mustDo(t, w, op{Do: "reopen", Member: one, Kind: "StatefulSet.apps", Version: "apps/v1", State: aggregate.Synced})
	states("the others do not serve it", policy.Known)
	serve(two, "Deployment.apps", "StatefulSet.apps")
	states("it is served, and not read", policy.Unknown)
	mustDo(t, w, op{Do: "reopen", Member: two, Kind: "StatefulSet.apps", Version: "apps/v1", State: aggregate.Synced})
	states("it is read", policy.Known)
	mustDo(t, w, op{Do: "join", Member: "fleet/new"})
	states("one was never reached", policy.Unknown)
	mustDo(t, w, op{Do: "leave", Member: "fleet/new"})
	states("it has left", policy.Known)
}
