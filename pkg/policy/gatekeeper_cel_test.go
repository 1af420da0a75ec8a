package policy_test

import (
	"errors"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
)

const celTemplate = `
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: replicalimits}
spec:
  crd: {spec: {names: {kind: ReplicaLimits}, validation: {openAPIV3Schema: {type: object, properties: {max: {type: integer}}}}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code:
    - engine: K8sNativeValidation
      source:
        variables:
        - {name: max, expression: "namespaceObject.metadata.labels.env == 'production' ? variables.params.max : 1"}
        validations:
        - {expression: "variables.anyObject.spec.replicas <= variables.max", messageExpression: "'at most ' + string(variables.max)"}
    - engine: Rego
      source:
        rego: |
          package replicalimits
          violation[{"msg": "Rego was taken"}] { true }
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: ReplicaLimits
metadata: {name: five}
spec:
  match: {kinds: [{apiGroups: [apps], kinds: [Deployment]}]}
  parameters: {max: 5}
`

func replicas(n any) map[string]any { return map[string]any{"spec": map[string]any{"replicas": n}} }

func TestGatekeeper_TakesCELAndFollowsTheNamespace(t *testing.T) {
	t.Parallel()
	w := gatekeeperWorld(t)
	set := loadFiles(t, policy.File{Path: "replicas.yaml", Data: []byte(celTemplate)})
	mustDo(
		t, w,
		putIn("fleet/a", "Deployment.apps", "shop", "web", replicas(7)),
		putIn("fleet/a", "Deployment.apps", "shop", "api", replicas(3)),
		putIn("fleet/b", "Deployment.apps", "shop", "odd", replicas("many")),
	)
	e, cursor := gatekeeperEngine(t, w, set)
	after := func(ops ...op) *policy.State {
		mustDo(t, w, ops...)
		apply(t, e, cursor)
		return e.State()
	}
	wantMessages(t, e.State(), "ReplicaLimits/five",
		"fleet/a|shop|web|at most 5", "odd failed: expression 'variables.anyObject.spec.replicas <= variables.max' resulted in error: no such overload")
	// Only the Namespace changes: what read it is evaluated again.
	s := after(op{Do: "put", Member: "fleet/a", Kind: "Namespace", Name: "shop", Object: withLabels(map[string]any{"env": "test"}, nil)})
	wantMessages(t, s, "ReplicaLimits/five",
		"fleet/a|shop|api|at most 1", "fleet/a|shop|web|at most 1",
		"odd failed: expression 'variables.anyObject.spec.replicas <= variables.max' resulted in error: no such overload")
}

func TestGatekeeper_RefusesCELThatAsksForARequest(t *testing.T) {
	t.Parallel()
	text := strings.Replace(celTemplate, "variables.anyObject.spec.replicas <= variables.max", "request.userInfo.username == 'x' || oldObject == null", 1)
	_, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "replicas.yaml", Data: []byte(text)}}}}, policy.LoadOptions{})
	var list policy.LoadErrors
	if !errors.As(err, &list) || len(list) != 2 || list[0].Line != 10 || !strings.Contains(list[0].Message, "reads oldObject") || !strings.Contains(list[1].Message, "reads request.userInfo") {
		t.Errorf("got %v", err)
	}
}
