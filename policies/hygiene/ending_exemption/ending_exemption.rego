# METADATA
# title: Exemptions are renewed or ended in time
# description: |
#   An exemption of a FleetPolicy that is about to end becomes a violation, or a
#   correction, when it does: the people who asked for it should know before. FleetPolicies are
#   objects of the hub, so that this policy sees them where the hub is a member of the
#   fleet itself; elsewhere it finds nothing. Exemptions without an end, and bindings in
#   files, are not evaluated.
# custom:
#   severity: low
#   kinds: ["FleetPolicy.federator.dev"]
#   parameters:
#     type: object
#     properties:
#       days:
#         description: How many days before its end an exemption is named.
#         type: integer
#         minimum: 0
#         maximum: 3650
#         default: 14
package federator.hygiene.ending_exemption

import data.federator.lib.time as lib

violation contains {"msg": sprintf("exemption %q ends at %s", [exemption.reason, exemption.expires])} if {
	some exemption in input.object.spec.exemptions
	lib.expires_within(exemption.expires, lib.days(input.parameters.days))
}
