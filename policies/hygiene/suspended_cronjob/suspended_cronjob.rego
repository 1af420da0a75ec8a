# METADATA
# title: Suspended CronJobs give a reason
# description: |
#   A CronJob that is suspended and then forgotten may mean that there have been no
#   backups for a year. A suspended CronJob must give the reason in an annotation. The
#   policy cannot tell how long a CronJob has been suspended: Kubernetes does not
#   record it.
# custom:
#   severity: low
#   kinds: ["CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       annotation:
#         description: Annotation with the reason.
#         type: string
#         minLength: 1
#         default: federator.dev/suspended-because
package federator.hygiene.suspended_cronjob

violation contains {"msg": sprintf("suspended without annotation %s%s", [input.parameters.annotation, last_run])} if {
	input.object.spec.suspend == true
	not explained
}

explained if {
	text := input.object.metadata.annotations[input.parameters.annotation]
	is_string(text)
	trim_space(text) != ""
}

last_run := sprintf("; it last ran at %s", [input.object.status.lastScheduleTime]) if {
	is_string(input.object.status.lastScheduleTime)
} else := "; it never ran"
