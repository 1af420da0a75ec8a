# METADATA
# title: A namespace denies traffic by default in all members or in none
# description: |
#   A NetworkPolicy that selects all Pods and allows nothing isolates a namespace, so
#   that only traffic that other NetworkPolicies allow gets in or out. Namespaces that
#   are isolated in some members but not in others are violations: those who
#   isolated them probably expect it everywhere. Directions are evaluated separately. The
#   policy does not check whether the member's network plugin enforces
#   NetworkPolicies, or what AdminNetworkPolicies and other kinds do. There is no
#   remedy, because isolating a namespace in use breaks it. Verdicts are Unknown while
#   the Namespaces or NetworkPolicies of a member are incomplete.
# custom:
#   severity: medium
#   kinds: ["Namespace", "NetworkPolicy.networking.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       directions:
#         description: Directions to evaluate.
#         type: array
#         items: {type: string, enum: [Ingress, Egress]}
#         default: [Ingress, Egress]
#       group:
#         description: Label of members. Only members with the same value of it, or without it, are compared with each other. If empty, all members are compared.
#         type: string
#         default: ""
package federator.network.default_deny_missing

import data.federator.lib.members

# The directions in which a namespace denies traffic by default.
view.closed[namespace] contains direction if {
	input.ref.kind == "NetworkPolicy.networking.k8s.io"
	namespace := input.ref.namespace
	selects_all
	some direction in closes
}

violation contains {
	"msg": sprintf("no NetworkPolicy denies %s by default, unlike in %s", [direction, members.few(elsewhere)]),
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

# Without policyTypes, a NetworkPolicy applies to Ingress, and to Egress if it has rules
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
