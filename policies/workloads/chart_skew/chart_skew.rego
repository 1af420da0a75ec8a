# METADATA
# title: A release has the same chart version everywhere
# description: |
#   Evaluates Helm releases by namespace, name (app.kubernetes.io/instance) and chart:
#   a release that is installed in several members should have one version, or some
#   members were missed in an upgrade. The version is that in the label helm.sh/chart,
#   which most charts set on all their objects; charts without it, or without a
#   version in it, are not evaluated. Two versions in one member mean an upgrade in
#   progress, or leftovers of one. Verdicts are Unknown while a kind of workload is
#   incomplete in any visible member.
# custom:
#   severity: low
#   subject: view.releases
#   kinds: ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       group:
#         description: Label of members. Only members with the same value of it, or without it, are compared with each other. If empty, all members are compared.
#         type: string
#         default: ""
package federator.workloads.chart_skew

import data.federator.lib.members

# The versions of a release, with keys such as "shop/web of chart nginx".
view.releases[key] contains version if {
	instance := input.object.metadata.labels["app.kubernetes.io/instance"]
	is_string(instance)
	label := input.object.metadata.labels["helm.sh/chart"]
	is_string(label)

	# The first part that looks like a version is one: names have no dots.
	parts := regex.find_all_string_submatch_n(`^([^.]+)-(v?[0-9]+\.[0-9].*)$`, label, 1)[0]
	version := parts[2]
	key := sprintf("%s/%s of chart %s", [input.ref.namespace, instance, parts[1]])
}

violation contains {
	"msg": sprintf("%d versions%s: %s", [count(versions), within(group), concat("; ", [text |
		some version, at in versions
		text := sprintf("%s in %s", [version, members.few(at)])
	])]),
	"details": {"group": group, "versions": versions},
} if {
	some group, versions in installed
	count(versions) > 1
}

# installed are the members of each version, by group.
installed[group][version] contains entry.ref.member if {
	some entry in input.entries
	version := entry.value
	group := members.group(entry.ref.member, input.parameters.group)
}

within("") := ""

within(group) := sprintf(" where %s is %s", [input.parameters.group, group]) if group != ""
