# METADATA
# title: A namespace is closed in all members or in none
# description: |
#   A NetworkPolicy that selects all Pods and allows nothing closes a namespace, so
#   that only what other policies name gets in or out. Reported are Namespaces that are
#   closed in some members and open in others: whoever closed them believes that they
#   are. Directions are judged apart. Whether the member's network enforces policies
#   at all, and what AdminNetworkPolicies or other kinds do, this policy does not see.
#   There is no remedy, as closing a namespace that serves requests stops it. As long
#   as Namespaces or NetworkPolicies of a member are not all known, verdicts are
#   Unknown.
# custom:
#   severity: medium
#   kinds: ["Namespace", "NetworkPolicy.networking.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       directions:
#         description: The directions that are judged.
#         type: array
#         items: {type: string, enum: [Ingress, Egress]}
#         default: [Ingress, Egress]
#       group:
#         description: A label of members. Only those that have the same value of it, or all of them none, are compared. Without one, all are.
#         type: string
#         default: ""
package federator.network.default_deny_missing

import data.federator.lib.members

# The directions in which a namespace is closed.
view.closed[namespace] contains direction if {
	input.ref.kind == "NetworkPolicy.networking.k8s.io"
	namespace := input.ref.namespace
	selects_all
	some direction in closes
}

violation contains {
	"msg": sprintf("nothing denies %s by default, as in %s", [direction, members.few(elsewhere)]),
	"details": {"direction": direction, "others": elsewhere},
} if {
	input.ref.kind == "Namespace"
	some direction in input.parameters.directions
	closed := {entry.ref.member |
		some entry in data.fleet.views["federator.network.default_deny_missing"].closed[input.ref.name]
		entry.value == direction
	}
	not input.ref.member in closed
	elsewhere := {member | some member in closed; members.peer(member, input.parameters.group)}
	count(elsewhere) > 0
}

selects_all if {
	selector := input.object.spec.podSelector
	is_object(selector)
	object.get(selector, "matchLabels", {}) in [{}, null]
	object.get(selector, "matchExpressions", []) in [[], null]
}

# Without policyTypes, a policy is about Ingress, and about Egress if it has rules
# for it.
closes contains "Ingress" if {
	object.get(input.object.spec, "policyTypes", []) in [[], null]
	allows_nothing("ingress")
}

closes contains direction if {
	some direction in input.object.spec.policyTypes
	some kind, rules in {"Ingress": "ingress", "Egress": "egress"}
	direction == kind
	allows_nothing(rules)
}

allows_nothing(rules) if object.get(input.object.spec, rules, []) in [[], null]
