# METADATA
# title: Apps ask for the memory that they need
# description: A Deployment requests as much memory as the platform requires.
# custom:
#   severity: medium
#   kinds: [Deployment.apps]
#   remedies: [{action: patch, kind: Deployment.apps}]
#   parameters:
#     type: object
#     required: [memory]
#     properties:
#       memory: {type: string}
package platform.memory

violation contains {
	"msg": sprintf("%s of memory where %s is asked for", [memory, input.parameters.memory]),
	"remedy": {"action": "patch", "patch": [{
		"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/memory",
		"value": input.parameters.memory,
	}]},
} if {
	memory := input.object.spec.template.spec.containers[0].resources.requests.memory
	memory != input.parameters.memory
}
