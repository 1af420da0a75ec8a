# METADATA
# title: Load balancers are internal or restricted to known addresses
# description: |
#   A Service of type LoadBalancer is exposed to the internet unless an annotation of
#   the cloud provider, the class of the load balancer or its source ranges restrict
#   it; all source ranges must be within the allowed ones. Source ranges are those in
#   the spec, or else in the annotation
#   service.beta.kubernetes.io/load-balancer-source-ranges. The policy cannot check
#   whether the cloud provider honors them, or what firewalls outside the cluster
#   allow.
# custom:
#   severity: high
#   kinds: ["Service"]
#   parameters:
#     type: object
#     properties:
#       internalAnnotations:
#         description: Annotations and values that make a load balancer internal. One of them is sufficient; values are case-insensitive.
#         type: object
#         additionalProperties: {type: string}
#         default:
#           networking.gke.io/load-balancer-type: Internal
#           cloud.google.com/load-balancer-type: Internal
#           service.beta.kubernetes.io/aws-load-balancer-scheme: internal
#           service.beta.kubernetes.io/aws-load-balancer-internal: "true"
#           service.beta.kubernetes.io/azure-load-balancer-internal: "true"
#           service.beta.kubernetes.io/openstack-internal-load-balancer: "true"
#           service.beta.kubernetes.io/oci-load-balancer-internal: "true"
#           service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type: intranet
#           service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type: private
#       internalClasses:
#         description: Values of loadBalancerClass for internal load balancers.
#         type: array
#         items: {type: string, minLength: 1}
#         default: []
#       sourceRanges:
#         description: Allowed CIDRs for source ranges. Defaults to private addresses.
#         type: array
#         items: {type: string, pattern: "^[0-9a-fA-F:.]+/[0-9]{1,3}$"}
#         default: [10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, "fc00::/7"]
package federator.exposure.load_balancer

violation contains {"msg": "the load balancer is not internal and accepts all addresses"} if {
	exposed
	count(ranges) == 0
}

violation contains {
	"msg": sprintf("the load balancer is not internal and accepts %s", [range]),
	"details": {"range": range},
} if {
	exposed
	some range in ranges
	not allowed(range)
}

exposed if {
	input.object.spec.type == "LoadBalancer"
	not inside
}

inside if {
	some key, text in input.parameters.internalAnnotations
	value := input.object.metadata.annotations[key]
	is_string(value)
	lower(value) == lower(text)
}

inside if input.object.spec.loadBalancerClass in input.parameters.internalClasses

# The annotation counts only if the spec has no source ranges, as in the service controller.
ranges := of_spec if {
	count(of_spec) > 0
} else := of_annotation

of_spec contains trim_space(text) if {
	some text in input.object.spec.loadBalancerSourceRanges
	is_string(text)
}

of_annotation contains trim_space(text) if {
	list := input.object.metadata.annotations["service.beta.kubernetes.io/load-balancer-source-ranges"]
	is_string(list)
	some text in split(list, ",")
	trim_space(text) != ""
}

allowed(range) if {
	net.cidr_is_valid(range)
	some outer in input.parameters.sourceRanges
	net.cidr_contains(outer, range)
}
