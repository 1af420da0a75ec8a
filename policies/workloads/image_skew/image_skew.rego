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
	"details": {"container": name, "image": own, "others": others_images},
} if {
	some name, own in images(input.object.spec.template.spec)
	others_images := {member: other |
		some member, other in elsewhere[name]
		differ(own, other)
	}
	others := object.keys(others_images)
	count(others) > 0
	versions := {version(other) | some other in others_images}
}

# elsewhere are the images of a container in the members to compare with.
elsewhere[name][member] := other if {
	some member, object in siblings
	members.peer(member, input.parameters.group)
	some name, other in images(object.spec.template.spec)
}

siblings := data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name] if input.ref.kind == "Deployment.apps"

siblings := data.fleet.by_name["StatefulSet.apps"][input.ref.namespace][input.ref.name] if input.ref.kind == "StatefulSet.apps"

siblings := data.fleet.by_name["DaemonSet.apps"][input.ref.namespace][input.ref.name] if input.ref.kind == "DaemonSet.apps"

# images are those of containers by their names, of which API servers refuse two.
images(pod) := {name: min(refs) |
	containers := array.concat(workload.init(pod), workload.long_running(pod))
	some named in containers
	name := named.name
	is_string(name)
	refs := {container.image | some container in containers; container.name == name; is_string(container.image)}
	count(refs) > 0
}

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
