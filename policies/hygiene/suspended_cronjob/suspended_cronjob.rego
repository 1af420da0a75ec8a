# METADATA
# title: Suspended CronJobs say why
# description: |
#   A CronJob that was suspended for an evening and forgotten makes no backups for a
#   year. Whoever suspends one says why in an annotation. Since when it is suspended
#   nobody has written down, and policies read no clock.
# custom:
#   severity: low
#   kinds: ["CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       annotation:
#         description: The annotation that says why.
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
