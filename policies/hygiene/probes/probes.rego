# METADATA
# title: Containers that serve requests have probes
# description: |
#   Without a readiness probe a container receives requests before it can answer them,
#   and a rollout continues whatever state the new version is in. The containers of
#   Deployments, StatefulSets and DaemonSets are evaluated, including init containers
#   that keep running (sidecars); by default only containers that declare a port. The
#   policy does not check what a probe does.
# custom:
#   severity: medium
#   kinds: ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps"]
#   parameters:
#     type: object
#     properties:
#       probes:
#         description: Probes that containers must have.
#         type: array
#         items: {type: string, enum: [readinessProbe, livenessProbe, startupProbe]}
#         default: [readinessProbe]
#       allContainers:
#         description: Whether containers without a declared port must have them, too.
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
