# METADATA
# title: Jobs come to an end
# description: |
#   A Job that runs on and on holds its resources, and what it was to do is not done. The
#   time counts from when the Job was started, again after a suspension. Jobs that are
#   suspended, have succeeded or have failed are not violations, nor are those that
#   nothing has started yet.
# custom:
#   severity: low
#   kinds: ["Job.batch"]
#   parameters:
#     type: object
#     properties:
#       after:
#         description: How long a Job may run, such as 12h.
#         type: string
#         pattern: '^([0-9]+[hms])+$'
#         default: 24h
package federator.workloads.unfinished_job

import data.federator.lib.time as lib

violation contains {"msg": sprintf("has run for more than %s, since %s", [input.parameters.after, input.object.status.startTime])} if {
	lib.older(input.object.status.startTime, input.parameters.after)
	not ended
}

ended if input.object.spec.suspend == true

ended if {
	some condition in input.object.status.conditions
	condition.type in ["Complete", "Failed"]
	condition.status == "True"
}
