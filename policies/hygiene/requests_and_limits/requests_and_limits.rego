# METADATA
# title: Containers say what they need
# description: |
#   The scheduler places Pods by what they request, and a container without a limit
#   of memory can take the node with it. A limit counts as a request, and what the
#   Pod as a whole asks for counts for its containers. Defaults of a LimitRange are
#   given at admission: they are in Pods, and never in templates. Judged are Pods and
#   the templates of Deployments, StatefulSets, DaemonSets, Jobs and CronJobs; what
#   was made of such a template is not told of again.
# custom:
#   severity: medium
#   kinds: ["Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       requests:
#         description: Resources that containers must request.
#         type: array
#         items: {type: string, minLength: 1}
#         default: [cpu, memory]
#       limits:
#         description: Resources of which containers must have a limit.
#         type: array
#         items: {type: string, minLength: 1}
#         default: [memory]
#       initContainers:
#         description: Whether init containers that end must say it, too. Those that keep running always must.
#         type: boolean
#         default: false
package federator.hygiene.requests_and_limits

import data.federator.lib.workload

violation contains {
	"msg": sprintf("container %s requests no %s", [workload.name(container), resource]),
	"details": {"container": workload.name(container), "resource": resource, "field": "requests"},
} if {
	not workload.templated
	some container in judged
	some resource in input.parameters.requests
	not requested(container, resource)
}

violation contains {
	"msg": sprintf("container %s has no limit of %s", [workload.name(container), resource]),
	"details": {"container": workload.name(container), "resource": resource, "field": "limits"},
} if {
	not workload.templated
	some container in judged
	some resource in input.parameters.limits
	not limited(container, resource)
}

judged := array.concat(workload.long_running(workload.spec), starting)

starting := workload.init(workload.spec) if {
	input.parameters.initContainers
} else := workload.sidecars(workload.spec)

requested(container, resource) if container.resources.requests[resource] != null

requested(_, resource) if workload.spec.resources.requests[resource] != null

requested(container, resource) if limited(container, resource)

limited(container, resource) if container.resources.limits[resource] != null

limited(_, resource) if workload.spec.resources.limits[resource] != null
