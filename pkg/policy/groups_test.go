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
