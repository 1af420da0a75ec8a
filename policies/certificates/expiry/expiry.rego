# METADATA
# title: Names have a valid certificate
# description: |
#   Evaluates the DNS names of cert-manager Certificates, each name once for all
#   members: a violation lists the certificates that expire too early and whether
#   another member has one that does not. If another member has one, renewal works
#   there; if none has, the name is about to be without a certificate. A certificate
#   expires too early when fewer than the given days are left, or when cert-manager
#   itself reports it as expired. Certificates without DNS names, and Secrets that
#   cert-manager does not manage, are not evaluated. Verdicts are Unknown while the
#   Certificates of a member are incomplete.
# custom:
#   severity: high
#   subject: view.names
#   kinds: ["Certificate.cert-manager.io"]
#   parameters:
#     type: object
#     properties:
#       days:
#         description: How many days before a certificate ends it should have been renewed.
#         type: integer
#         minimum: 0
#         maximum: 3650
#         default: 21
package federator.certificates.expiry

import data.federator.lib.members
import data.federator.lib.time as lib

# The certificates of a name: until when they are valid, and whether they have expired.
view.names[name] contains {"notAfter": not_after, "expired": expired} if some name in names

violation contains {
	"msg": sprintf("expires at %s in %s; %s", [min({entry.value.notAfter | some entry in early}), members.few(places(early)), others]),
	"details": {"certificates": [{"ref": entry.ref, "notAfter": entry.value.notAfter} | some entry in early]},
} if {
	count(early) > 0
}

early := [entry | some entry in input.entries; too_early(entry.value)]

lasting := [entry | some entry in input.entries; not too_early(entry.value)]

too_early(certificate) if certificate.expired

too_early(certificate) if lib.expires_within(certificate.notAfter, lib.days(input.parameters.days))

places(entries) := {sprintf("%s %s/%s", [entry.ref.member, entry.ref.namespace, entry.ref.name]) | some entry in entries}

others := sprintf("lasts in %s", [members.few(places(lasting))]) if count(lasting) > 0

others := "lasts nowhere else" if count(lasting) == 0

names contains input.object.spec.commonName if usable(input.object.spec.commonName)

names contains name if {
	some name in input.object.spec.dnsNames
	usable(name)
}

usable(name) if {
	is_string(name)
	name != ""
}

# A certificate that was never issued has no notAfter. The time is in apimachinery's format.
not_after := input.object.status.notAfter if {
	is_string(input.object.status.notAfter)
	regex.match(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$`, input.object.status.notAfter)
}

default expired := false

expired if {
	some condition in input.object.status.conditions
	condition.type == "Ready"
	condition.status == "False"
	condition.reason == "Expired"
}
