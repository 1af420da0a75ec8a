# METADATA
# title: Ingresses use TLS
# description: |
#   Traffic that an Ingress serves without TLS can be read and changed in transit.
#   Each host in the rules must be in the tls section; *.example.org covers one label,
#   and a tls entry without hosts covers all hosts, like the default certificate of
#   the controller. Controllers that get certificates from elsewhere are recognized by
#   an annotation. The policy does not check that the certificate exists, is valid and
#   matches the host.
# custom:
#   severity: high
#   kinds: ["Ingress.networking.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       annotations:
#         description: Annotations by which a controller assigns a certificate to an Ingress.
#         type: array
#         items: {type: string, minLength: 1}
#         default:
#         - alb.ingress.kubernetes.io/certificate-arn
#         - ingress.gcp.kubernetes.io/pre-shared-cert
#         - networking.gke.io/managed-certificates
#         - appgw.ingress.kubernetes.io/appgw-ssl-certificate
#       plainHosts:
#         description: Hosts that may be served without TLS, as written in the rules.
#         type: array
#         items: {type: string, minLength: 1}
#         default: []
package federator.exposure.ingress_tls

violation contains {
	"msg": sprintf("host %s is served without TLS", [host]),
	"details": {"host": host},
} if {
	not elsewhere
	some rule in input.object.spec.rules
	host := rule.host
	is_string(host)
	host != ""
	not covered(host)
	not host in input.parameters.plainHosts
}

violation contains {"msg": "the default backend, or a rule without a host, is served without TLS"} if {
	not elsewhere
	catches_all
	not any_host
}

elsewhere if {
	some key in input.parameters.annotations
	text := input.object.metadata.annotations[key]
	is_string(text)
	text != ""
}

catches_all if is_object(input.object.spec.defaultBackend)

catches_all if {
	some rule in input.object.spec.rules
	is_object(rule)
	object.get(rule, "host", "") in {"", null}
}

# tls is a list of objects; other values cover nothing.
any_host if {
	some entry in input.object.spec.tls
	is_object(entry)
	object.get(entry, "hosts", []) in [[], null]
}

covered(_) if any_host

covered(host) if host in certified

covered(host) if {
	parts := split(host, ".")
	concat(".", array.concat(["*"], array.slice(parts, 1, count(parts)))) in certified
}

certified contains input.object.spec.tls[_].hosts[_]
