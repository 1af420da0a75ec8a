# METADATA
# title: Apps run in enough regions
# description: |
#   Deployments that are labeled as multi-region must run under the same namespace and
#   name in members of at least the required number of regions. The region is the
#   value of a label of the member; members without that label, and members in which
#   the Deployment is scaled to zero, do not count. The policy does not check whether
#   the Pods are ready or whether all regions receive traffic, and it cannot report a
#   Deployment that exists in no member. Verdicts are Unknown while the Deployments of
#   a member are incomplete.
# custom:
#   severity: high
#   kinds: ["Deployment.apps"]
#   parameters:
#     type: object
#     properties:
#       mark:
#         description: Label that marks a Deployment as multi-region, with any value. "" selects all Deployments.
#         type: string
#         default: federator.dev/multi-region
#       region:
#         description: Label of members whose value is the region.
#         type: string
#         minLength: 1
#         default: region
#       regions:
#         description: Minimum number of regions.
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
