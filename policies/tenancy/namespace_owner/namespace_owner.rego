# METADATA
# title: A namespace has one owner in all members
# description: |
#   The namespace shop is the same team's wherever it is: who is called at night, who
#   pays and who may change things follows from a label. Reported are Namespaces
#   without it, and those whose owner is another than in some other member. Which of
#   the two is right nobody can tell from here, and federator changes no Namespaces.
#   Whether the owner exists this policy does not see. Where owners differ on purpose,
#   as between members of different companies, give the parameter group a label of
#   members. As long as Namespaces of a member are not all known, verdicts are Unknown.
# custom:
#   severity: medium
#   kinds: ["Namespace"]
#   parameters:
#     type: object
#     properties:
#       label:
#         description: The label of Namespaces that names the owner.
#         type: string
#         minLength: 1
#         default: owner
#       exempt:
#         description: Namespaces that need no owner; * stands for any characters.
#         type: array
#         items: {type: string, pattern: '^[a-z0-9*-]+$', maxLength: 63}
#         default: [default, kube-*]
#       group:
#         description: A label of members. Only those that have the same value of it, or all of them none, are compared. Without one, all are.
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
