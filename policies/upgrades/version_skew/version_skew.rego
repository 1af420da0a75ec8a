# METADATA
# title: Members keep up with each other
# description: |
#   A member whose Kubernetes is several minor versions behind the others of its group
#   runs what nobody tests with any more, and will take several upgrades in a row. A
#   member is judged by the version that its API server reports: versions of nodes may
#   be older, and those of members that were never reached are not known.
# custom:
#   severity: medium
#   subject: member
#   parameters:
#     type: object
#     properties:
#       minors:
#         description: How many minor versions a member may be behind the newest.
#         type: integer
#         minimum: 0
#         default: 2
#       group:
#         description: A label of members. Only those that have the same value of it, or all of them none, are compared. Without one, all are.
#         type: string
#         default: ""
package federator.upgrades.version_skew

import data.federator.lib.members
import data.federator.lib.version

violation contains {
	"msg": sprintf("runs %s, %s behind %s (%s)", [
		data.fleet.members[input.member.name].version,
		apart(newest - own),
		members.few(ahead),
		data.fleet.members[min(ahead)].version,
	]),
	"details": {"version": data.fleet.members[input.member.name].version, "newest": ahead},
} if {
	own := minor(input.member.name)
	newest := max({minor(name) | some name in group})
	newest - own > input.parameters.minors
	ahead := {name | some name in group; minor(name) == newest}
}

group contains name if {
	some name in data.fleet.names
	members.group(name, input.parameters.group) == members.group(input.member.name, input.parameters.group)
}

minor(name) := version.minor(data.fleet.members[name].version)

apart(1) := "1 minor version"

apart(n) := sprintf("%d minor versions", [n]) if n != 1
