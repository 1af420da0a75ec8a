# METADATA
# title: Images are of known registries and pinned
# description: |
#   An image of a foreign registry runs foreign code, and one under a tag that moves
#   is another image after the next restart. Without the parameter registries images
#   of every registry are taken. Short names are those of Docker Hub:
#   nginx is docker.io/library/nginx. Mirrors that nodes are configured with, and
#   policies of admission that change images, are seen in Pods only. Judged are Pods
#   and the templates of Deployments, StatefulSets, DaemonSets, Jobs and CronJobs;
#   what was made of such a template is not told of again.
# custom:
#   severity: high
#   kinds: ["Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       registries:
#         description: Registries, or parts of them such as ghcr.io/acme, that images may be of. None allows all.
#         type: array
#         items: {type: string, pattern: "^[^/]+"}
#         default: []
#       movingTags:
#         description: Tags that say nothing about what they hold. An image without tag and digest has the tag latest.
#         type: array
#         items: {type: string}
#         default: [latest]
#       digest:
#         description: Whether images must be pinned by digest.
#         type: boolean
#         default: false
#       placeholders:
#         description: What templates have in place of an image that is filled in later, as auto for Istio's proxies.
#         type: array
#         items: {type: string}
#         default: [auto]
package federator.security.image_registry

import data.federator.lib.image
import data.federator.lib.workload

violation contains {
	"msg": sprintf("%s is of no allowed registry: %s", [used.by, used.image]),
	"details": {"image": used.image, "name": image.name(used.image)},
} if {
	not workload.templated
	some used in images
	count(input.parameters.registries) > 0
	not known(used.image)
}

violation contains {
	"msg": sprintf("%s has an image with moving tag %s: %s", [used.by, tag, used.image]),
	"details": {"image": used.image, "tag": tag},
} if {
	not workload.templated
	some used in images
	not image.digest(used.image)
	tag := image.tag(used.image)
	tag in input.parameters.movingTags
}

violation contains {
	"msg": sprintf("%s has an image without digest: %s", [used.by, used.image]),
	"details": {"image": used.image},
} if {
	input.parameters.digest
	not workload.templated
	some used in images
	not image.digest(used.image)
}

known(reference) if {
	some registry in input.parameters.registries
	image.within(reference, registry)
}

images contains {"by": sprintf("container %s", [workload.name(container)]), "image": container.image} if {
	some container in workload.containers(workload.spec)
	reference(container.image)
}

images contains {"by": sprintf("volume %s", [workload.name(volume)]), "image": volume.image.reference} if {
	some volume in workload.spec.volumes
	reference(volume.image.reference)
}

reference(text) if {
	is_string(text)
	text != ""
	not text in input.parameters.placeholders
}
