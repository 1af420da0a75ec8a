# METADATA
# title: A workload runs the same images everywhere
# description: |
#   A Deployment, StatefulSet or DaemonSet that several members have under one
#   namespace and name is one app: a member that runs another version of a container
#   was left behind by a rollout, or changed by hand. Compared are the tags, or the
#   digests where both images have one; registries and repositories are not, as they
#   may be mirrors. Where one image has a tag only, and the other a digest only, nobody
#   can tell. While a rollout goes from member to member its finding is expected: give
#   the parameter a label of members that tells its waves or stages apart.
# custom:
#   severity: medium
#   kinds: ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps"]
#   parameters:
#     type: object
#     properties:
#       group:
#         description: A label of members. Only those that have the same value of it, or all of them none, are compared. Without one, all are.
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
		some member, object in siblings
		some [same, other] in images(object.spec.template.spec)
		same == name
		other != own
		differ(own, other)
		members.peer(member, input.parameters.group)
	}
	count(differing) > 0
	others := {member | some [member, _] in differing}
	versions := {version(other) | some [_, other] in differing}
}

siblings := data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name] if input.ref.kind == "Deployment.apps"

siblings := data.fleet.by_name["StatefulSet.apps"][input.ref.namespace][input.ref.name] if input.ref.kind == "StatefulSet.apps"

siblings := data.fleet.by_name["DaemonSet.apps"][input.ref.namespace][input.ref.name] if input.ref.kind == "DaemonSet.apps"

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
