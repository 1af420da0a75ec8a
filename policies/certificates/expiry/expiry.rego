# METADATA
# title: Names keep a certificate that is valid
# description: |
#   Judged are the DNS names of the Certificates of cert-manager, each once for all
#   members: which of its certificates expire too early, and whether any other member
#   has one that does not. If one has, renewing works there; if none has, the name is
#   about to be lost. Policies read no clock: give the parameter the time until which
#   certificates must last, and raise it every day. Without it, those are reported that
#   cert-manager itself says have expired. Certificates without DNS names, and Secrets
#   that cert-manager does not write, this policy does not see. Verdicts are Unknown as
#   long as Certificates of a member are not all known.
# custom:
#   severity: high
#   subject: view.names
#   kinds: ["Certificate.cert-manager.io"]
#   parameters:
#     type: object
#     properties:
#       until:
#         description: What expires before this time, as 2026-12-31T00:00:00Z, expires too early.
#         type: string
#         pattern: '^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$'
#         default: ""
package federator.certificates.expiry

import data.federator.lib.members

# The certificates of a name: until when they are valid, and whether they no longer are.
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

# Both are in UTC and of one length, so that they sort as times do.
too_early(certificate) if certificate.notAfter < input.parameters.until

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

# A certificate that was never issued has no end. The time is as apimachinery writes it.
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
