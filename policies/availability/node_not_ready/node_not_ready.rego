# METADATA
# title: Nodes are ready
# description: |
#   A Node that is not ready, or of which nobody has heard, for longer than a restart takes
#   is capacity that is paid for and not used. The time counts from when its condition
#   Ready changed last. Nodes with the given annotation may be not ready.
# custom:
#   severity: high
#   kinds: ["Node"]
#   parameters:
#     type: object
#     properties:
#       after:
#         description: How long a Node may be not ready, such as 5m.
#         type: string
#         pattern: '^([0-9]+[hms])+$'
#         default: 15m
#       annotation:
#         description: Annotation of Nodes that may be not ready.
#         type: string
#         minLength: 1
#         default: federator.dev/maintenance
package federator.availability.node_not_ready

import data.federator.lib.time as lib

violation contains {"msg": sprintf("not ready for more than %s, since %s", [input.parameters.after, ready.lastTransitionTime])} if {
	some ready in input.object.status.conditions
	ready.type == "Ready"
	ready.status != "True"
	lib.older(ready.lastTransitionTime, input.parameters.after)
	not input.object.metadata.annotations[input.parameters.annotation]
}
