# METADATA
# title: A namespace has the same owner in all members
# description: |
#   A namespace belongs to the same team in every member: who is on call, who pays and
#   who may make changes is derived from a label. Namespaces without the label, and
#   Namespaces with different owners in different members, are violations. The policy
#   cannot tell which owner is right, has no remedy, and does not check whether the
#   owner exists. If owners differ intentionally, for example between members of
#   different companies, set the parameter group to a label of members. Verdicts are
#   Unknown while the Namespaces of a member are incomplete.
# custom:
#   severity: medium
#   kinds: ["Namespace"]
#   parameters:
#     type: object
#     properties:
#       label:
#         description: Label of Namespaces whose value is the owner.
#         type: string
#         minLength: 1
#         default: owner
#       exempt:
#         description: Namespaces that need no owner; * matches any characters.
#         type: array
#         items: {type: string, pattern: '^[a-z0-9*-]+$', maxLength: 63}
#         default: [default, kube-*]
#       group:
#         description: Label of members. Only members with the same value of it, or without it, are compared with each other. If empty, all members are compared.
#         type: string
#         default: ""
package federator.tenancy.namespace_owner

import data.federator.lib.members

violation contains {
	"msg": sprintf("label %s is missing%s", [input.parameters.label, known]),
	"details": {"owner": "", "others": others},
} if {
	not exempt
	owner(input.object) == ""
}

violation contains {
	"msg": sprintf("owner is %s here and %s", [own, stated(disagreeing)]),
	"details": {"owner": own, "others": disagreeing},
} if {
	not exempt
	own := owner(input.object)
	own != ""
	disagreeing := {other: at | some other, at in others; other != own}
	count(disagreeing) > 0
}

# others are the members of each other owner.
others[owner(object)] contains member if {
	some member, object in data.fleet.by_name.Namespace[""][input.ref.name]
	members.peer(member, input.parameters.group)
	owner(object) != ""
}

exempt if {
	some pattern in input.parameters.exempt
	glob.match(pattern, [], input.ref.name)
}

default owner(_) := ""

owner(object) := object.metadata.labels[input.parameters.label] if is_string(object.metadata.labels[input.parameters.label])

default known := ""

known := sprintf("; it is %s", [stated(others)]) if count(others) > 0

stated(owners) := concat("; ", [sprintf("%s in %s", [other, members.few(at)]) | some other, at in owners])
