# METADATA
# title: Containers have resource requests and limits
# description: |
#   The scheduler places Pods by their resource requests, and a container without a
#   memory limit can exhaust the memory of its node. A limit counts as a request, and
#   requests and limits of the Pod count for its containers. Defaults of a LimitRange
#   are set at admission: they are in Pods, but not in templates. Pods and the
#   templates of Deployments, StatefulSets, DaemonSets, Jobs and CronJobs are
#   evaluated; objects created from such a template are not reported again.
# custom:
#   severity: medium
#   kinds: ["Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       requests:
#         description: Resources for which containers must have a request.
#         type: array
#         items: {type: string, minLength: 1}
#         default: [cpu, memory]
#       limits:
#         description: Resources for which containers must have a limit.
#         type: array
#         items: {type: string, minLength: 1}
#         default: [memory]
#       initContainers:
#         description: Whether init containers that run to completion are evaluated, too. Sidecars always are.
#         type: boolean
#         default: false
package federator.hygiene.requests_and_limits

import data.federator.lib.workload

violation contains {
	"msg": sprintf("container %s has no request for %s", [workload.name(container), resource]),
	"details": {"container": workload.name(container), "resource": resource, "field": "requests"},
} if {
	not workload.templated
	some container in evaluated
	some resource in input.parameters.requests
	not requested(container, resource)
}

violation contains {
	"msg": sprintf("container %s has no limit for %s", [workload.name(container), resource]),
	"details": {"container": workload.name(container), "resource": resource, "field": "limits"},
} if {
	not workload.templated
	some container in evaluated
	some resource in input.parameters.limits
	not limited(container, resource)
}

evaluated := array.concat(workload.long_running(workload.spec), starting)

starting := workload.init(workload.spec) if {
	input.parameters.initContainers
} else := workload.sidecars(workload.spec)

requested(container, resource) if container.resources.requests[resource] != null

requested(_, resource) if workload.spec.resources.requests[resource] != null

requested(container, resource) if limited(container, resource)

limited(container, resource) if container.resources.limits[resource] != null

limited(_, resource) if workload.spec.resources.limits[resource] != null
