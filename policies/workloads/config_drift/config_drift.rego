# METADATA
# title: Replicated configuration is the same everywhere
# description: |
#   A Role, ClusterRole, NetworkPolicy or ConfigMap that is labeled as replicated must
#   be the same in all members that have it; a difference means that a change has
#   reached only some of them. The rules of roles, the spec of NetworkPolicies and the
#   keys of ConfigMaps are compared: federator holds no values of ConfigMaps. The
#   order of lists does not matter. An object with the label is compared with the
#   objects of the same namespace and name in other members, whether they have the
#   label or not. The policy cannot tell which of them is right. Verdicts are Unknown
#   while the kind is incomplete in any visible member.
# custom:
#   severity: medium
#   kinds: ["ConfigMap", "Role.rbac.authorization.k8s.io", "ClusterRole.rbac.authorization.k8s.io", "NetworkPolicy.networking.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       label:
#         description: Label of replicated objects.
#         type: string
#         minLength: 1
#         default: federator.dev/replicate
#       value:
#         description: Value of the label.
#         type: string
#         default: "true"
#       everywhere:
#         description: Whether it is a violation if a member does not have the object.
#         type: boolean
#         default: false
#       group:
#         description: Label of members. Only members with the same value of it, or without it, are compared with each other. If empty, all members are compared.
#         type: string
#         default: ""
package federator.workloads.config_drift

import data.federator.lib.members

violation contains {
	"msg": sprintf("%s differ from %s", [compared, members.few(drifted)]),
	"details": {"others": drifted},
} if {
	replicated
	drifted := {member |
		some member, other in siblings
		written(other) != written(input.object)
		content(other) != content(input.object)
		members.peer(member, input.parameters.group)
	}
	count(drifted) > 0
}

violation contains {
	"msg": sprintf("is missing in %s", [members.few(without)]),
	"details": {"without": without},
} if {
	replicated
	input.parameters.everywhere
	without := {member |
		some member in data.fleet.names
		members.peer(member, input.parameters.group)
		not siblings[member]
	}
	count(without) > 0
}

replicated if input.object.metadata.labels[input.parameters.label] == input.parameters.value

siblings := data.fleet.by_name.ConfigMap[input.ref.namespace][input.ref.name] if input.ref.kind == "ConfigMap"

siblings := data.fleet.by_name["Role.rbac.authorization.k8s.io"][input.ref.namespace][input.ref.name] if {
	input.ref.kind == "Role.rbac.authorization.k8s.io"
}

siblings := data.fleet.by_name["ClusterRole.rbac.authorization.k8s.io"][""][input.ref.name] if {
	input.ref.kind == "ClusterRole.rbac.authorization.k8s.io"
}

siblings := data.fleet.by_name["NetworkPolicy.networking.k8s.io"][input.ref.namespace][input.ref.name] if {
	input.ref.kind == "NetworkPolicy.networking.k8s.io"
}

compared := "keys" if input.ref.kind == "ConfigMap"

compared := "rules" if input.ref.kind == "Role.rbac.authorization.k8s.io"

compared := "rules" if input.ref.kind == "ClusterRole.rbac.authorization.k8s.io"

compared := "rules" if input.ref.kind == "NetworkPolicy.networking.k8s.io"

# written is compared first: it is usually equal, and then lists need not be compared
# regardless of their order.
written(x) := [object.get(x, "data", null), object.get(x, "binaryData", null)] if input.ref.kind == "ConfigMap"

written(x) := object.get(x, "rules", null) if input.ref.kind == "Role.rbac.authorization.k8s.io"

written(x) := object.get(x, "rules", null) if input.ref.kind == "ClusterRole.rbac.authorization.k8s.io"

written(x) := object.get(x, "spec", null) if input.ref.kind == "NetworkPolicy.networking.k8s.io"

content(x) := keys(x, "data") | keys(x, "binaryData") if input.ref.kind == "ConfigMap"

content(x) := rules(x) if input.ref.kind == "Role.rbac.authorization.k8s.io"

content(x) := rules(x) if input.ref.kind == "ClusterRole.rbac.authorization.k8s.io"

content(x) := {field: unordered(y) | some field, y in x.spec} if input.ref.kind == "NetworkPolicy.networking.k8s.io"

keys(x, field) := {key | some key, _ in x[field]}

rules(x) := {{field: unordered(y) | some field, y in rule} | some rule in x.rules}

# unordered converts lists to sets, recursively: the resources of a rule, the ports of
# another.
unordered(x) := {inner(y) | some y in x} if is_array(x)

unordered(x) := x if not is_array(x)

inner(x) := {field: members_of(y) | some field, y in x} if is_object(x)

inner(x) := x if not is_object(x)

members_of(x) := {y | some y in x} if is_array(x)

members_of(x) := x if not is_array(x)
