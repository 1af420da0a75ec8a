# METADATA
# title: No privileged containers
# description: |
#   A privileged container, a capability beyond a short list or a path of the node is
#   a way out of the container, into the node and every Pod on it. Judged are Pods
#   and the templates of Deployments, StatefulSets, DaemonSets, Jobs and CronJobs;
#   what was made of such a template is not told of again. The default of
#   capabilities is the list of the Pod Security Standard "baseline".
# custom:
#   severity: critical
#   kinds: ["Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       capabilities:
#         description: Capabilities that containers may add. ALL in it allows every one.
#         type: array
#         items: {type: string, pattern: "^[A-Z_]+$"}
#         default: [AUDIT_WRITE, CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, MKNOD, NET_BIND_SERVICE, SETFCAP, SETGID, SETPCAP, SETUID, SYS_CHROOT]
#       hostPaths:
#         description: Paths of the node that Pods may mount, with all below them.
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
	"msg": sprintf("volume %s is the node's %s", [workload.name(volume), path]),
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
