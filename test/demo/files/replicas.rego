# METADATA
# title: Critical apps run more than once
# description: A Deployment of tier critical has as many replicas as the platform requires.
# custom:
#   severity: high
#   kinds: [Deployment.apps]
#   remedies: [{action: patch, kind: Deployment.apps}]
#   parameters:
#     type: object
#     properties:
#       replicas: {type: integer, minimum: 1, default: 2}
package platform.replicas

violation contains {
	"msg": sprintf("%d replicas where %d are asked for", [input.object.spec.replicas, input.parameters.replicas]),
	"remedy": {"action": "patch", "patch": {"spec": {"replicas": input.parameters.replicas}}},
} if {
	input.object.metadata.labels.tier == "critical"
	input.object.spec.replicas < 1
}
