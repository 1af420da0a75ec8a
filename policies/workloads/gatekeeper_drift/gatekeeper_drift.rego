# METADATA
# title: Gatekeeper's templates are the same everywhere
# description: |
#   A ConstraintTemplate of Gatekeeper that members have under the same name must be the
#   same in all of them: where it differs, equal constraints admit different objects. The
#   spec is compared, by its digest; the version is what its annotation
#   metadata.gatekeeper.sh/version says. Members without Gatekeeper do not count; a
#   template that only some of the members with Gatekeeper have is a violation if
#   everywhere is set. Constraints are not compared: their kinds are those that the
#   templates define. Verdicts are Unknown while the templates of any visible member are
#   incomplete.
# custom:
#   severity: medium
#   subject: view.templates
#   kinds: ["ConstraintTemplate.templates.gatekeeper.sh"]
#   parameters:
#     type: object
#     properties:
#       everywhere:
#         description: Whether it is a violation if a member with other templates does not have the template.
#         type: boolean
#         default: false
#       group:
#         description: Label of members. Only members with the same value of it, or without it, are compared with each other. If empty, all members are compared.
#         type: string
#         default: ""
package federator.workloads.gatekeeper_drift

import data.federator.lib.members

# What a member has of a template, by its name.
view.templates[input.ref.name] contains {"version": version, "digest": digest} if {
	version := object.get(input.object, ["metadata", "annotations", "metadata.gatekeeper.sh/version"], "unversioned")
	digest := substring(crypto.sha256(json.marshal(object.get(input.object, "spec", null))), 0, 8)
}

# The members that have templates.
view.members.gatekeeper contains true if is_object(input.object.metadata)

violation contains {
	"msg": sprintf("%d variants%s: %s", [count(variants), within(group), concat("; ", [text |
		some variant, at in variants
		text := sprintf("%s in %s", [variant, members.few(at)])
	])]),
	"details": {"group": group, "variants": variants},
} if {
	some group, variants in installed
	count(variants) > 1
}

violation contains {
	"msg": sprintf("is missing%s in %s", [within(group), members.few(without)]),
	"details": {"group": group, "without": without},
} if {
	input.parameters.everywhere
	some group, variants in installed
	having := union({at | some at in variants})
	running := {entry.ref.member |
		some entry in data.fleet.views["federator.workloads.gatekeeper_drift"].members.gatekeeper
		members.group(entry.ref.member, input.parameters.group) == group
	}
	without := running - having
	count(without) > 0
}

# installed are the members with each variant, by group.
installed[group][variant] contains entry.ref.member if {
	some entry in input.entries
	variant := sprintf("%s (%s)", [entry.value.version, entry.value.digest])
	group := members.group(entry.ref.member, input.parameters.group)
}

within("") := ""

within(group) := sprintf(" where %s is %s", [input.parameters.group, group]) if group != ""
