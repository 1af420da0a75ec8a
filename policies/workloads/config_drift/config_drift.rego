# METADATA
# title: What is replicated is the same everywhere
# description: |
#   A Role, ClusterRole, NetworkPolicy or ConfigMap with a label that says that it is
#   replicated is the same in all members that have it, or a change has reached some of
#   them only. Of roles the rules are compared, of NetworkPolicies the spec, of
#   ConfigMaps the keys alone: federator holds no values. The order of lists does not
#   count. An object is judged where it has the label, against those of its namespace
#   and name in other members, labelled or not. Which of them is right nobody can tell
#   from here. As long as the kind is incomplete in any member that the binding sees,
#   verdicts are Unknown.
# custom:
#   severity: medium
#   kinds: ["ConfigMap", "Role.rbac.authorization.k8s.io", "ClusterRole.rbac.authorization.k8s.io", "NetworkPolicy.networking.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       label:
#         description: The label of what is replicated.
#         type: string
#         minLength: 1
#         default: federator.dev/replicate
#       value:
#         description: The value of the label.
#         type: string
#         default: "true"
#       everywhere:
#         description: Whether it is a finding that a member does not have the object at all.
#         type: boolean
#         default: false
#       group:
#         description: A label of members. Only those that have the same value of it, or all of them none, are compared. Without one, all are.
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

# written is what is compared as it is written: mostly it is the same, and what is
# written in another order need not be looked for.
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

# unordered makes sets of lists, and of those in their members: the resources of a
# rule, the ports of another.
unordered(x) := {inner(y) | some y in x} if is_array(x)

unordered(x) := x if not is_array(x)

inner(x) := {field: members_of(y) | some field, y in x} if is_object(x)

inner(x) := x if not is_object(x)

members_of(x) := {y | some y in x} if is_array(x)

members_of(x) := x if not is_array(x)
