package clitest

import (
	"maps"
	"strings"
	"testing"
)

const OwnedPolicyFile = "tenancy/owner/owner.rego"

// OwnedPolicy is a tree of one policy that passes its tests.
var OwnedPolicy = map[string]string{
	"tenancy/owner/owner.rego": `# METADATA
# title: Namespaces have an owner
# description: An owner is a label. Nothing <else> counts.
# custom:
#   severity: low
#   kinds: ["Namespace"]
#   remedies: [{action: patch, kind: Namespace}]
#   parameters:
#     type: object
#     properties:
#       label: {type: string, pattern: "^[a-z|]+$", default: owner, description: The label.}
#       teams:
#         type: array
#         description: Who may own.
#         default: []
#         items: {type: object, required: [name], properties: {name: {type: string}, size: {type: integer, minimum: 1}}}
#       exempt:
#         type: array
#         items: {type: string}
#         default: [kube-system, kube-public, kube-node-lease, default-but-long-enough, another-one]
package federator.tenancy.owner

violation contains {"msg": "there is no owner"} if {
	input.ref.kind == "Namespace"
	not input.ref.name in input.parameters.exempt
	not input.object.metadata.labels[input.parameters.label]
}

violation contains {"msg": sprintf("%s is no team", [owner])} if {
	input.ref.kind == "Namespace"
	owner := input.object.metadata.labels[input.parameters.label]
	count(input.parameters.teams) > 0
	not owner in {team.name | some team in input.parameters.teams}
}
`,
	"tenancy/owner/owner_test.rego": `package federator.tenancy.owner_test

import data.federator.tenancy.owner

parameters := {"label": "owner", "teams": [], "exempt": []}

test_nobody if {
	print("evaluating", input)
	count(owner.violation) == 1 with input as {"ref": {"kind": "Namespace", "name": "a"}, "object": {}, "parameters": parameters}
}

todo_test_teams if {
	count(owner.violation) == 0
}
`,
	"tenancy/owner/owner_fleet.yaml": `name: two namespaces
members:
- name: fleet/a
  objects:
  - {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
  - {apiVersion: v1, kind: Namespace, metadata: {name: pay, labels: {owner: pay}}}
expect:
- subject: fleet/a Namespace shop
  violations: [there is no owner]
`,
}

// OwnedPolicyWith is that tree with a text in the place of another in one file.
func OwnedPolicyWith(t *testing.T, file, old, with string) string {
	t.Helper()
	files := maps.Clone(OwnedPolicy)
	if !strings.Contains(files[file], old) {
		t.Fatalf("%s has no %q", file, old)
	}
	files[file] = strings.Replace(files[file], old, with, 1)
	return PolicyTree(t, files)
}
