# METADATA
# title: Containers do not run as root
# description: |
#   A container that runs as root is root on the node if it escapes. Each container
#   must set runAsNonRoot, or a user other than 0; settings of the Pod apply to
#   containers without their own. The policy cannot see the user that an image
#   selects. Pods and the templates of Deployments, StatefulSets, DaemonSets, Jobs and
#   CronJobs are evaluated; objects created from such a template are not reported
#   again.
# custom:
#   severity: high
#   kinds: ["Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       acceptUser:
#         description: Whether a runAsUser other than 0 is sufficient without runAsNonRoot.
#         type: boolean
#         default: true
package federator.security.run_as_non_root

import data.federator.lib.workload

violation contains {
	"msg": sprintf("container %s runs as user 0", [workload.name(container)]),
	"details": {"container": workload.name(container)},
} if {
	not workload.templated
	some container in workload.containers(workload.spec)
	root(container)
}

violation contains {
	"msg": sprintf("container %s may run as root", [workload.name(container)]),
	"details": {"container": workload.name(container)},
} if {
	not workload.templated
	some container in workload.containers(workload.spec)
	not root(container)
	not non_root(container)
}

root(container) if user(container) == 0

non_root(container) if must_not(container) == true

non_root(container) if {
	input.parameters.acceptUser
	user(container) > 0
}

# Settings of the container override those of the Pod.
must_not(container) := container.securityContext.runAsNonRoot if {
	is_boolean(container.securityContext.runAsNonRoot)
} else := workload.spec.securityContext.runAsNonRoot

user(container) := container.securityContext.runAsUser if {
	is_number(container.securityContext.runAsUser)
} else := workload.spec.securityContext.runAsUser if {
	is_number(workload.spec.securityContext.runAsUser)
}
