# METADATA
# title: Pods do not stay pending
# description: |
#   A Pod that stays pending takes no traffic, and often nobody notices: no node has room
#   for it, its image cannot be pulled, or a volume is missing. A violation names what the
#   Pod's status says of it. The time counts from the creation of the Pod.
# custom:
#   severity: medium
#   kinds: ["Pod"]
#   parameters:
#     type: object
#     properties:
#       after:
#         description: How long a Pod may be pending, such as 15m.
#         type: string
#         pattern: '^([0-9]+[hms])+$'
#         default: 1h
package federator.workloads.pending_pod

import data.federator.lib.time as lib

violation contains {"msg": sprintf("pending for more than %s%s", [input.parameters.after, why])} if {
	input.object.status.phase == "Pending"
	lib.older(input.object.metadata.creationTimestamp, input.parameters.after)
}

reasons contains condition.reason if {
	some condition in input.object.status.conditions
	condition.status == "False"
	is_string(condition.reason)
}

reasons contains waiting.reason if {
	some list in ["initContainerStatuses", "containerStatuses"]
	some container in input.object.status[list]
	waiting := container.state.waiting
	is_string(waiting.reason)
}

why := sprintf(": %s", [concat(", ", sort(reasons))]) if count(reasons) > 0

why := "" if count(reasons) == 0
