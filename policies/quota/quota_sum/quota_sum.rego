# METADATA
# title: Quotas of an owner stay within its budget
# description: |
#   A ResourceQuota limits a namespace in one member; what an owner may use in the
#   fleet is the sum over its namespaces in all members. The owner is the value of a
#   label of the Namespace. If a namespace has several quotas, the smallest counts,
#   because it is the effective one; quotas with scopes are ignored. A namespace
#   without a quota may use all resources, which is a violation, too, for owners with
#   a budget. Owners without a budget are not evaluated, so that this policy has no
#   violations without parameters. The policy does not check actual usage. Verdicts
#   are Unknown while the Namespaces or ResourceQuotas of a member are incomplete.
# custom:
#   severity: medium
#   subject: view.owners
#   kinds: ["Namespace", "ResourceQuota"]
#   parameters:
#     type: object
#     properties:
#       label:
#         description: Label of Namespaces whose value is the owner.
#         type: string
#         enum: [owner, team, tenant, federator.dev/owner]
#         default: owner
#       budgets:
#         description: 'Maximum sum of quotas by owner and resource: {shop: {requests.cpu: "100", requests.memory: 400Gi}}. Resources are named as in quotas; use requests.cpu for cpu.'
#         type: object
#         additionalProperties:
#           type: object
#           propertyNames: {not: {enum: [cpu, memory, ephemeral-storage]}}
#           additionalProperties: {type: string, pattern: '^[0-9]{1,18}([.][0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$'}
#         default: {}
#       default:
#         description: Budget by resource for owners that are not in budgets.
#         type: object
#         propertyNames: {not: {enum: [cpu, memory, ephemeral-storage]}}
#         additionalProperties: {type: string, pattern: '^[0-9]{1,18}([.][0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$'}
#         default: {}
package federator.quota.quota_sum

import data.federator.lib.members

# The Namespaces of an owner, with keys such as owner=shop, for each label that may
# name the owner.
view.owners[key] contains true if {
	input.ref.kind == "Namespace"
	some label in ["owner", "team", "tenant", "federator.dev/owner"]
	owner := input.object.metadata.labels[label]
	is_string(owner)
	owner != ""
	key := sprintf("%s=%s", [label, owner])
}

# The quotas in a namespace of a member.
view.quotas[key] contains amounts if {
	input.ref.kind == "ResourceQuota"
	is_object(input.object.spec)
	object.get(input.object.spec, "scopes", []) in [[], null]
	object.get(input.object.spec, "scopeSelector", null) == null
	key := sprintf("%s/%s", [input.ref.member, input.ref.namespace])
}

violation contains {
	"msg": sprintf("%s adds up to %s, more than %s, in %s", [resource, shown(resource, total), text, members.few(object.keys(amount_of))]),
	"details": {"resource": resource, "budget": text, "total": total, "namespaces": amount_of},
} if {
	some resource, text in budget
	amount_of := {namespace: limits[resource] | some namespace, limits in limits_of; limits[resource]}
	total := sum([amount | some amount in amount_of])
	total > quantity(text)
}

violation contains {
	"msg": sprintf("%s has no quota in %s", [resource, members.few(unlimited)]),
	"details": {"resource": resource, "budget": text, "namespaces": unlimited},
} if {
	some resource, text in budget
	unlimited := {namespace |
		some namespace in namespaces
		not limited(namespace, resource)
	}
	count(unlimited) > 0
}

budget := object.get(input.parameters.budgets, owner, input.parameters["default"])

owner := substring(input.key, count(input.parameters.label) + 1, -1) if startswith(input.key, concat("", [input.parameters.label, "="]))

namespaces contains sprintf("%s/%s", [entry.ref.member, entry.ref.name]) if some entry in input.entries

limits_of[namespace][resource] := min(amounts_here) if {
	some namespace in namespaces
	quotas := data.fleet.views["federator.quota.quota_sum"].quotas[namespace]
	some resource, _ in budget
	amounts_here := {entry.value[resource] | some entry in quotas}
	count(amounts_here) > 0
}

limited(namespace, resource) if is_number(limits_of[namespace][resource])

# amounts are the limits of a quota by resource: cpu is another name for requests.cpu,
# and memory for requests.memory.
amounts := {resource: min(found) |
	some name, _ in input.object.spec.hard
	resource := long(name)
	found := {amount |
		some other, text in input.object.spec.hard
		long(other) == resource
		amount := quantity(text)
	}
	count(found) > 0
}

long(name) := sprintf("requests.%s", [name]) if name in {"cpu", "memory", "ephemeral-storage"}

long(name) := name if not name in {"cpu", "memory", "ephemeral-storage"}

# quantity parses a quantity in apimachinery's format.
quantity(text) := text if is_number(text)

quantity(text) := units.parse(text) if {
	is_string(text)
	regex.match(`^[0-9]{1,18}([.][0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$`, text)
}

quantity(text) := to_number(trim_suffix(text, "u")) / 1000000 if {
	is_string(text)
	regex.match(`^[0-9]{1,18}u$`, text)
}

quantity(text) := to_number(trim_suffix(text, "n")) / 1000000000 if {
	is_string(text)
	regex.match(`^[0-9]{1,18}n$`, text)
}

quantity(text) := to_number(text) if {
	is_string(text)
	regex.match(`^[0-9]{1,18}([.][0-9]{1,9})?[eE][+]?[0-9]{1,2}$`, text)
}

shown(resource, amount) := sprintf("%vGi", [hundredths / 100]) if {
	in_bytes(resource)
	amount >= 1073741824
	hundredths := round((100 * amount) / 1073741824)
} else := sprintf("%v", [round(1000 * amount) / 1000])

in_bytes(resource) if endswith(resource, "memory")

in_bytes(resource) if endswith(resource, "storage")
