# METADATA
# title: A workload runs the same images everywhere
# description: |
#   A Deployment, StatefulSet or DaemonSet with the same namespace and name in several
#   members is one app: a member that runs another version of a container was missed
#   by a rollout, or changed manually. Tags are compared, or digests if both images
#   have one; registries and repositories are not, because they may be mirrors. An
#   image with only a tag and one with only a digest cannot be compared. Violations
#   are expected while a rollout proceeds from member to member: set the parameter
#   group to a label of members that distinguishes its waves or stages.
# custom:
#   severity: medium
#   kinds: ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps"]
#   parameters:
#     type: object
#     properties:
#       group:
#         description: Label of members. Only members with the same value of it, or without it, are compared with each other. If empty, all members are compared.
#         type: string
#         default: ""
package federator.workloads.image_skew

import data.federator.lib.image
import data.federator.lib.members
import data.federator.lib.workload

violation contains {
	"msg": sprintf("container %s runs %s here and %s in %s", [name, version(own), members.few(versions), members.few(others)]),
	"details": {"container": name, "image": own, "others": {{"member": member, "image": other} | some [member, other] in differing}},
} if {
	some [name, own] in images(input.object.spec.template.spec)
	differing := {[member, other] |
		some member, runs in siblings
		some [same, other] in runs
		same == name
		other != own
		differ(own, other)
		members.peer(member, input.parameters.group)
	}
	count(differing) > 0
	others := {member | some [member, _] in differing}
	versions := {version(other) | some [_, other] in differing}
}

# siblings are the images of the workload in all members. No more is read of it there.
siblings := {member: images(object.spec.template.spec) |
	some member, object in data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name]
} if input.ref.kind == "Deployment.apps"

siblings := {member: images(object.spec.template.spec) |
	some member, object in data.fleet.by_name["StatefulSet.apps"][input.ref.namespace][input.ref.name]
} if input.ref.kind == "StatefulSet.apps"

siblings := {member: images(object.spec.template.spec) |
	some member, object in data.fleet.by_name["DaemonSet.apps"][input.ref.namespace][input.ref.name]
} if input.ref.kind == "DaemonSet.apps"

# images are the names of containers and their images.
images(pod) := [[name, ref] |
	some container in array.concat(workload.init(pod), workload.long_running(pod))
	name := container.name
	ref := container.image
	is_string(name)
	is_string(ref)
]

differ(a, b) if image.digest(a) != image.digest(b)

differ(a, b) if {
	not both_digests(a, b)
	image.tag(a) != image.tag(b)
}

both_digests(a, b) if {
	image.digest(a)
	image.digest(b)
}

version(ref) := image.tag(ref)

version(ref) := image.digest(ref) if not image.tag(ref)
