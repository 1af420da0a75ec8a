# METADATA
# title: Members run similar Kubernetes versions
# description: |
#   A member whose Kubernetes version is several minor versions behind the others in
#   its group runs a version that is no longer tested and needs several upgrades in a
#   row. The version is the one that the API server reports; members that have never
#   been reached are not evaluated. Kubernetes supports kubelets that are up to three
#   minor versions older than their API server, and none that are newer: unsupported
#   Nodes are counted, if they are up to twenty versions older or ten newer. For
#   these, verdicts are Unknown while the Nodes of a member are incomplete.
# custom:
#   severity: medium
#   subject: member
#   kinds: ["Node"]
#   parameters:
#     type: object
#     properties:
#       minors:
#         description: Number of minor versions that a member may be behind the newest.
#         type: integer
#         minimum: 0
#         default: 2
#       kubelets:
#         description: Number of minor versions that kubelets may be behind their API server; -1 disables the evaluation of Nodes.
#         type: integer
#         minimum: -1
#         maximum: 20
#         default: 3
#       group:
#         description: Label of members. Only members with the same value of it, or without it, are compared with each other. If empty, all members are compared.
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
	newest := max({version.minor(v) | some v in versions})
	newest - own > input.parameters.minors
	best := {v | some v in versions; version.minor(v) == newest}
	ahead := {name | some name in group; data.fleet.members[name].version in best}
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

# group are the members that are compared with each other.
group := data.fleet.names if input.parameters.group == ""

group := [name |
	some name in data.fleet.names
	members.group(name, input.parameters.group) == members.group(input.member.name, input.parameters.group)
] if {
	input.parameters.group != ""
}

# versions are theirs: few, however many members there are.
versions := {data.fleet.members[name].version | some name in group}

minor(name) := version.minor(data.fleet.members[name].version)

apart(1) := "1 minor version"

apart(n) := sprintf("%d minor versions", [n]) if n != 1
