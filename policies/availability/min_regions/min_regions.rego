# METADATA
# title: An app runs in enough regions
# description: |
#   A Deployment that is marked to survive the loss of a region runs under the same
#   namespace and name in members of as many regions as are asked for. A region is the
#   value of a label of members; members without it count for none, and neither do
#   those where the Deployment is scaled to zero. Whether its Pods are ready, and
#   whether anything sends requests to all regions, this policy does not ask. A
#   Deployment that is in no member at all has no verdict. Verdicts of marked
#   Deployments are Unknown as long as Deployments of a member are not all known.
# custom:
#   severity: high
#   kinds: ["Deployment.apps"]
#   parameters:
#     type: object
#     properties:
#       mark:
#         description: The label that marks a Deployment, with any value. "" is all Deployments.
#         type: string
#         default: federator.dev/multi-region
#       region:
#         description: The label of members that says their region.
#         type: string
#         minLength: 1
#         default: region
#       regions:
#         description: How many regions are enough.
#         type: integer
#         minimum: 2
#         default: 2
package federator.availability.min_regions

import data.federator.lib.members

violation contains {
	"msg": sprintf("runs in %s of %d regions%s", [number(regions), input.parameters.regions, named]),
	"details": {"regions": regions, "required": input.parameters.regions},
} if {
	marked
	count(regions) < input.parameters.regions
}

marked if input.parameters.mark == ""

marked if is_string(input.object.metadata.labels[input.parameters.mark])

regions contains region if {
	some member, object in data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name]
	not scaled_down(object)
	region := members.group(member, input.parameters.region)
	region != ""
}

scaled_down(object) if object.spec.replicas == 0

number(set) := sprintf("%d", [count(set)]) if count(set) > 0

number(set) := "none" if count(set) == 0

default named := ""

named := sprintf(": %s", [members.few(regions)]) if count(regions) > 0
