# METADATA
# title: Gatekeeper's templates and constraints are the same everywhere
# description: |
#   A ConstraintTemplate or a constraint of Gatekeeper that members have under the same
#   name must be the same in all of them: where it differs, they admit different objects.
#   The spec is compared, by its digest; a template's version is what its annotation
#   metadata.gatekeeper.sh/version says, and of a constraint it is shown what it does.
#   The key of a constraint is its kind and its name, as in K8sRequiredLabels/owner.
#   Members without Gatekeeper do not count; what only some of the members with
#   Gatekeeper have is a violation if everywhere is set. Verdicts are Unknown while the
#   templates or constraints of any visible member are incomplete.
# custom:
#   severity: medium
#   subject: view.installed
#   kinds: ["ConstraintTemplate.templates.gatekeeper.sh", "*.constraints.gatekeeper.sh"]
#   parameters:
#     type: object
#     properties:
#       everywhere:
#         description: Whether it is a violation if a member with Gatekeeper does not have the template or constraint.
#         type: boolean
#         default: false
#       group:
#         description: Label of members. Only members with the same value of it, or without it, are compared with each other. If empty, all members are compared.
#         type: string
#         default: ""
package federator.workloads.gatekeeper_drift

import data.federator.lib.members

# What a member has of a template, by its name.
view.installed[input.ref.name] contains {"version": version, "digest": digest} if {
	input.ref.kind == template
	version := object.get(input.object, ["metadata", "annotations", "metadata.gatekeeper.sh/version"], "unversioned")
}

# What it has of a constraint, by its kind and name.
view.installed[sprintf("%s/%s", [kind, input.ref.name])] contains {"version": action, "digest": digest} if {
	input.ref.kind != template
	kind := split(input.ref.kind, ".")[0]
	action := object.get(input.object, ["spec", "enforcementAction"], "deny")
}

template := "ConstraintTemplate.templates.gatekeeper.sh"

digest := substring(crypto.sha256(json.marshal(object.get(input.object, "spec", null))), 0, 8)

# The members that have either.
view.members.gatekeeper contains true if is_object(input.object.metadata)

violation contains {
	"msg": sprintf("%d variants%s: %s", [count(variants), within(group), concat("; ", [text |
		some variant, at in variants
		text := sprintf("%s in %s", [variant, members.few(at)])
	])]),
	"details": {"group": group, "variants": variants},
} if {
	some group, variants in running
	count(variants) > 1
}

violation contains {
	"msg": sprintf("is missing%s in %s", [within(group), members.few(without)]),
	"details": {"group": group, "without": without},
} if {
	input.parameters.everywhere
	some group, variants in running
	having := union({at | some at in variants})
	with_gatekeeper := {entry.ref.member |
		some entry in data.fleet.views["federator.workloads.gatekeeper_drift"].members.gatekeeper
		members.group(entry.ref.member, input.parameters.group) == group
	}
	without := with_gatekeeper - having
	count(without) > 0
}

# running are the members with each variant, by group.
running[group][variant] contains entry.ref.member if {
	some entry in input.entries
	variant := sprintf("%s (%s)", [entry.value.version, entry.value.digest])
	group := members.group(entry.ref.member, input.parameters.group)
}

within("") := ""

within(group) := sprintf(" where %s is %s", [input.parameters.group, group]) if group != ""
