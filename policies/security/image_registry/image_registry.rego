# METADATA
# title: Images are from allowed registries and pinned
# description: |
#   An image from an untrusted registry runs untrusted code, and an image with a
#   mutable tag may be another one after the next restart. If the parameter registries
#   is empty, all registries are allowed. Short names are those of Docker Hub: nginx
#   is docker.io/library/nginx. Registry mirrors configured on nodes, and admission
#   policies that change images, are visible in Pods only. Pods and the templates of
#   Deployments, StatefulSets, DaemonSets, Jobs and CronJobs are evaluated; objects
#   created from such a template are not reported again.
# custom:
#   severity: high
#   kinds: ["Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       registries:
#         description: Allowed registries, or parts of them such as ghcr.io/acme. If empty, all are allowed.
#         type: array
#         items: {type: string, pattern: "^[^/]+"}
#         default: []
#       movingTags:
#         description: Tags that are considered mutable. An image without tag and digest has the tag latest.
#         type: array
#         items: {type: string}
#         default: [latest]
#       digest:
#         description: Whether images must be pinned by digest.
#         type: boolean
#         default: false
#       placeholders:
#         description: Placeholders for images that are set at admission, such as auto for Istio's proxies.
#         type: array
#         items: {type: string}
#         default: [auto]
package federator.security.image_registry

import data.federator.lib.image
import data.federator.lib.workload

violation contains {
	"msg": sprintf("%s uses an image from a registry that is not allowed: %s", [used.by, used.image]),
	"details": {"image": used.image, "name": image.name(used.image)},
} if {
	not workload.templated
	some used in images
	count(input.parameters.registries) > 0
	not known(used.image)
}

violation contains {
	"msg": sprintf("%s uses an image with the mutable tag %s: %s", [used.by, tag, used.image]),
	"details": {"image": used.image, "tag": tag},
} if {
	not workload.templated
	some used in images
	not image.digest(used.image)
	tag := image.tag(used.image)
	tag in input.parameters.movingTags
}

violation contains {
	"msg": sprintf("%s uses an image without a digest: %s", [used.by, used.image]),
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
