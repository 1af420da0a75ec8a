# METADATA
# title: A release is of one chart version everywhere
# description: |
#   Judged are the releases of Helm charts by namespace, name
#   (app.kubernetes.io/instance) and chart: one that is installed in several members
#   should be of one version, or the members were upgraded by hand and some were
#   forgotten. The version is that of the label helm.sh/chart, which most charts give
#   to all that they make; of others, and of charts whose label has no version, nothing
#   is known here. Within one member two versions mean an upgrade that is under way or
#   has left something behind. As long as a kind of workload is incomplete in any
#   member that the binding sees, verdicts are Unknown.
# custom:
#   severity: low
#   subject: view.releases
#   kinds: ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       group:
#         description: A label of members. Only those that have the same value of it, or all of them none, are compared. Without one, all are.
#         type: string
#         default: ""
package federator.workloads.chart_skew

import data.federator.lib.members

# The versions of a release, of which the key is shop/web of chart nginx.
view.releases[key] contains version if {
	instance := input.object.metadata.labels["app.kubernetes.io/instance"]
	is_string(instance)
	label := input.object.metadata.labels["helm.sh/chart"]
	is_string(label)

	# What comes first and looks like a version is one: names have no dots.
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
