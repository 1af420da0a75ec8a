# METADATA
# title: Members keep up with each other
# description: |
#   A member whose Kubernetes is several minor versions behind the others of its group
#   runs what nobody tests with any more, and will take several upgrades in a row. Its
#   version is what its API server reports; members that were never reached are not
#   judged. Kubernetes supports kubelets up to three minor versions behind their API
#   server and none ahead of it: Nodes beyond that are counted, where they are up to
#   twenty behind or ten ahead. For these, verdicts are Unknown as long as the Nodes of
#   a member are not all known.
# custom:
#   severity: medium
#   subject: member
#   kinds: ["Node"]
#   parameters:
#     type: object
#     properties:
#       minors:
#         description: How many minor versions a member may be behind the newest.
#         type: integer
#         minimum: 0
#         default: 2
#       kubelets:
#         description: How many minor versions kubelets may be behind their API server; -1 is not to look at Nodes.
#         type: integer
#         minimum: -1
#         maximum: 20
#         default: 3
#       group:
#         description: A label of members. Only those that have the same value of it, or all of them none, are compared. Without one, all are.
#         type: string
#         default: ""
package federator.upgrades.version_skew

import data.federator.lib.members
import data.federator.lib.version

# The Nodes of a member by the minor version of their kubelets, as fleet/eu-1 1.31.
view.kubelets[key] contains true if {
	key := sprintf("%s 1.%d", [input.ref.member, version.minor(input.object.status.nodeInfo.kubeletVersion)])
}

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

violation contains {
	"msg": sprintf("runs %s, and kubelets of 1.%d on %s", [
		data.fleet.members[input.member.name].version,
		unsupported,
		members.few(nodes),
	]),
	"details": {"version": data.fleet.members[input.member.name].version, "kubelets": sprintf("1.%d", [unsupported]), "nodes": nodes},
} if {
	input.parameters.kubelets >= 0
	own := minor(input.member.name)
	behind := numbers.range(own - 21, own - (input.parameters.kubelets + 1))
	ahead := numbers.range(own + 1, own + 10)
	some unsupported in array.concat(behind, ahead)
	key := sprintf("%s 1.%d", [input.member.name, unsupported])
	nodes := {entry.ref.name | some entry in data.fleet.views["federator.upgrades.version_skew"].kubelets[key]}
	count(nodes) > 0
}

group contains name if {
	some name in data.fleet.names
	members.group(name, input.parameters.group) == members.group(input.member.name, input.parameters.group)
}

minor(name) := version.minor(data.fleet.members[name].version)

apart(1) := "1 minor version"

apart(n) := sprintf("%d minor versions", [n]) if n != 1
