# METADATA
# title: PersistentVolumeClaims are in use
# description: |
#   A bound PersistentVolumeClaim that no Pod mounts and no Pod template refers to
#   costs money, or holds data that was forgotten. Claims of a StatefulSet count as
#   used while it exists, even if it is scaled down. The policy cannot see other
#   references to a claim, such as in custom resources or backups, and therefore
#   proposes no remedy: mark such claims with one of the labels in the parameter.
#   Verdicts are Unknown while a kind that may use claims is incomplete in any visible
#   member.
# custom:
#   severity: low
#   kinds: ["PersistentVolumeClaim", "Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       labels:
#         description: Labels, with any value, of claims that are kept intentionally.
#         type: array
#         items: {type: string, minLength: 1}
#         default: [federator.dev/keep]
package federator.hygiene.orphaned_pvc

import data.federator.lib.workload

# The claims that a Pod or a Pod template mounts, and those created for a Pod.
view.used[key] contains input.ref.kind if {
	some mounted in workload.spec.volumes
	name := mounted.persistentVolumeClaim.claimName
	is_string(name)
	key := sprintf("%s/%s/%s", [input.ref.member, input.ref.namespace, name])
}

view.used[key] contains input.ref.kind if {
	input.ref.kind == "Pod"
	some mounted in workload.spec.volumes
	is_object(mounted.ephemeral)
	is_string(mounted.name)
	key := sprintf("%s/%s/%s-%s", [input.ref.member, input.ref.namespace, input.ref.name, mounted.name])
}

# The claims of a StatefulSet, without the ordinal at the end of their names.
view.made[key] contains true if {
	input.ref.kind == "StatefulSet.apps"
	some template in input.object.spec.volumeClaimTemplates
	is_string(template.metadata.name)
	key := sprintf("%s/%s/%s-%s", [input.ref.member, input.ref.namespace, template.metadata.name, input.ref.name])
}

violation contains {
	"msg": sprintf("nothing uses the claim%s", [size]),
	"details": {"volume": volume},
} if {
	input.ref.kind == "PersistentVolumeClaim"
	input.object.status.phase == "Bound"
	not kept
	not used
}

claim := sprintf("%s/%s/%s", [input.ref.member, input.ref.namespace, input.ref.name])

used if data.fleet.views["federator.hygiene.orphaned_pvc"].used[claim]

used if {
	numberless := regex.replace(claim, `-[0-9]+$`, "")
	numberless != claim
	data.fleet.views["federator.hygiene.orphaned_pvc"].made[numberless]
}

kept if {
	some key in input.parameters.labels
	input.object.metadata.labels[key]
}

default volume := ""

volume := input.object.spec.volumeName if is_string(input.object.spec.volumeName)

size := sprintf(" of %s", [input.object.status.capacity.storage]) if {
	is_string(input.object.status.capacity.storage)
} else := ""
