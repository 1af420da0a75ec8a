# METADATA
# title: No namespaces or ports of the node
# description: |
#   A Pod in the node's network, process or IPC namespace sees the traffic, processes
#   and memory of others, passes NetworkPolicies by, and with a port of the node can
#   run once per node only. Judged are Pods and the templates of Deployments,
#   StatefulSets, DaemonSets, Jobs and CronJobs; what was made of such a template is
#   not told of again. Ports of a Pod in the node's network are not told one by one.
# custom:
#   severity: high
#   kinds: ["Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       namespaces:
#         description: Namespaces of the node that Pods may be in.
#         type: array
#         items: {type: string, enum: [hostNetwork, hostPID, hostIPC]}
#         default: []
#       ports:
#         description: Ranges of the node's ports that containers may take, both ends included.
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
	"msg": sprintf("the Pod is in the node's namespace: %s", [namespace]),
	"details": {"field": namespace},
} if {
	not workload.templated
	some namespace in shared
	not namespace in input.parameters.namespaces
}

violation contains {
	"msg": sprintf("container %s takes port %d of the node", [workload.name(container), port]),
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

# The names are written out, so that nothing else of the spec is read.
shared contains "hostNetwork" if workload.spec.hostNetwork == true

shared contains "hostPID" if workload.spec.hostPID == true

shared contains "hostIPC" if workload.spec.hostIPC == true

# Where the Pod is in the node's network, every port of a container is the node's.
in_network if "hostNetwork" in shared

allowed(port) if {
	some range in input.parameters.ports
	range.min <= port
	port <= range.max
}
