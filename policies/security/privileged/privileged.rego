# METADATA
# title: Containers are not privileged
# description: |
#   A privileged container, a dangerous capability or a mounted path of the node lets
#   an attacker escape from the container to the node and every Pod on it. Pods and
#   the templates of Deployments, StatefulSets, DaemonSets, Jobs and CronJobs are
#   evaluated; objects created from such a template are not reported again. The
#   default capabilities are those of the Pod Security Standard "baseline".
# custom:
#   severity: critical
#   kinds: ["Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       capabilities:
#         description: Capabilities that containers may add. ALL allows all capabilities.
#         type: array
#         items: {type: string, pattern: "^[A-Z_]+$"}
#         default: [AUDIT_WRITE, CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, MKNOD, NET_BIND_SERVICE, SETFCAP, SETGID, SETPCAP, SETUID, SYS_CHROOT]
#       hostPaths:
#         description: Paths of the node that Pods may mount, including everything below them.
#         type: array
#         items: {type: string, pattern: "^/"}
#         default: []
package federator.security.privileged

import data.federator.lib.workload

violation contains {
	"msg": sprintf("container %s is privileged", [workload.name(container)]),
	"details": {"container": workload.name(container)},
} if {
	not workload.templated
	some container in workload.containers(workload.spec)
	container.securityContext.privileged == true
}

violation contains {
	"msg": sprintf("container %s adds capability %s", [workload.name(container), capability]),
	"details": {"container": workload.name(container), "capability": capability},
} if {
	not workload.templated
	some container in workload.containers(workload.spec)
	some added in container.securityContext.capabilities.add
	is_string(added)
	capability := trim_prefix(upper(added), "CAP_")
	not capability in input.parameters.capabilities
	not "ALL" in input.parameters.capabilities
}

violation contains {
	"msg": sprintf("volume %s mounts %s of the node", [workload.name(volume), path]),
	"details": {"volume": workload.name(volume), "path": path},
} if {
	not workload.templated
	some volume in workload.spec.volumes
	path := volume.hostPath.path
	is_string(path)
	not allowed(path)
}

allowed(path) if path in input.parameters.hostPaths

allowed(path) if {
	some parent in input.parameters.hostPaths
	startswith(path, concat("", [trim_suffix(parent, "/"), "/"]))
}
