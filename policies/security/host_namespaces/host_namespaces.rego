# METADATA
# title: Pods do not use host namespaces or host ports
# description: |
#   A Pod in the network, PID or IPC namespace of its node can observe the traffic,
#   processes and memory of others and bypasses NetworkPolicies; a Pod with a host
#   port can run only once per node. Pods and the templates of Deployments,
#   StatefulSets, DaemonSets, Jobs and CronJobs are evaluated; objects created from
#   such a template are not reported again. If a Pod uses the host network, its ports
#   are not reported one by one.
# custom:
#   severity: high
#   kinds: ["Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       namespaces:
#         description: Host namespaces that Pods may use.
#         type: array
#         items: {type: string, enum: [hostNetwork, hostPID, hostIPC]}
#         default: []
#       ports:
#         description: Ranges of host ports that containers may use, inclusive.
#         type: array
#         items:
#           type: object
#           required: [min, max]
#           properties:
#             min: {type: integer, minimum: 1, maximum: 65535}
#             max: {type: integer, minimum: 1, maximum: 65535}
#         default: []
package federator.security.host_namespaces

import data.federator.lib.workload

violation contains {
	"msg": sprintf("the Pod uses %s", [namespace]),
	"details": {"field": namespace},
} if {
	not workload.templated
	some namespace in shared
	not namespace in input.parameters.namespaces
}

violation contains {
	"msg": sprintf("container %s uses host port %d", [workload.name(container), port]),
	"details": {"container": workload.name(container), "port": port},
} if {
	not workload.templated
	not in_network
	some container in workload.containers(workload.spec)
	port := container.ports[_].hostPort
	is_number(port)
	port > 0
	not allowed(port)
}

# The names are constants, so that no other fields of the spec are read.
shared contains "hostNetwork" if workload.spec.hostNetwork == true

shared contains "hostPID" if workload.spec.hostPID == true

shared contains "hostIPC" if workload.spec.hostIPC == true

# If the Pod uses the host network, every port of a container is a host port.
in_network if "hostNetwork" in shared

allowed(port) if {
	some range in input.parameters.ports
	range.min <= port
	port <= range.max
}
