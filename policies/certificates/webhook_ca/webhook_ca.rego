# METADATA
# title: CA bundles of webhooks last
# description: |
#   When the CA certificates by which an API server knows a webhook have expired, it
#   rejects what the webhook was to admit, or admits what it was to reject. A bundle is
#   a violation when the last of its certificates is about to expire, or when it cannot
#   be parsed. Webhooks without a bundle use the CAs of their member and are not
#   evaluated; whether the webhook's own certificate is valid is not known.
# custom:
#   severity: high
#   kinds: ["ValidatingWebhookConfiguration.admissionregistration.k8s.io", "MutatingWebhookConfiguration.admissionregistration.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       days:
#         description: How many days before the last certificate ends it should have been replaced.
#         type: integer
#         minimum: 0
#         maximum: 3650
#         default: 30
package federator.certificates.webhook_ca

import data.federator.lib.time as lib

violation contains {"msg": sprintf("the CA bundle of webhook %s expires at %s", [webhook.name, last])} if {
	endswith(input.ref.kind, "WebhookConfiguration.admissionregistration.k8s.io")
	some webhook in webhooks
	base64.is_valid(webhook.bundle)
	pem := base64.decode(webhook.bundle)
	contains(pem, "-----BEGIN CERTIFICATE-----")
	last := max({certificate.NotAfter | some certificate in crypto.x509.parse_certificates(pem)})
	lib.expires_within(last, lib.days(input.parameters.days))
}

violation contains {"msg": sprintf("the CA bundle of webhook %s has no certificates in PEM", [webhook.name])} if {
	endswith(input.ref.kind, "WebhookConfiguration.admissionregistration.k8s.io")
	some webhook in webhooks
	not pems(webhook.bundle)
}

webhooks contains {"name": webhook.name, "bundle": webhook.clientConfig.caBundle} if {
	some webhook in input.object.webhooks
	is_string(webhook.name)
	is_string(webhook.clientConfig.caBundle)
	webhook.clientConfig.caBundle != ""
}

pems(bundle) if {
	base64.is_valid(bundle)
	contains(base64.decode(bundle), "-----BEGIN CERTIFICATE-----")
}
