# METADATA
# title: Servers have probes
# description: |
#   Without a readiness probe a container gets requests before it can answer them, and
#   a rollout goes on whatever the new version does. Judged are the containers of
#   Deployments, StatefulSets and DaemonSets, those init containers included that keep
#   running; by default only containers that declare a port. What a probe asks, and
#   whether that says anything, this policy does not judge.
# custom:
#   severity: medium
#   kinds: ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps"]
#   parameters:
#     type: object
#     properties:
#       probes:
#         description: The probes that containers must have.
#         type: array
#         items: {type: string, enum: [readinessProbe, livenessProbe, startupProbe]}
#         default: [readinessProbe]
#       allContainers:
#         description: Whether containers that declare no port must have them, too.
#         type: boolean
#         default: false
package federator.hygiene.probes

import data.federator.lib.workload

violation contains {
	"msg": sprintf("container %s has no %s", [workload.name(container), probe]),
	"details": {"container": workload.name(container), "probe": probe},
} if {
	input.ref.kind in {"Deployment.apps", "StatefulSet.apps", "DaemonSet.apps"}
	pod := input.object.spec.template.spec
	some container in array.concat(workload.long_running(pod), workload.sidecars(pod))
	serves(container)
	some probe in input.parameters.probes
	not probed(container, probe)
}

serves(_) if input.parameters.allContainers

serves(container) if container.ports[_]

probed(container, "readinessProbe") if is_object(container.readinessProbe)

probed(container, "livenessProbe") if is_object(container.livenessProbe)

probed(container, "startupProbe") if is_object(container.startupProbe)
