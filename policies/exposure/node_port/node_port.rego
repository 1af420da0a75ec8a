# METADATA
# title: Services do not open node ports
# description: |
#   A Service of type NodePort opens a port on every node of its member and bypasses
#   Ingress, TLS and other protection at the edge. Services of type LoadBalancer open
#   node ports, too, unless allocateLoadBalancerNodePorts is false; they are only
#   evaluated if the parameter loadBalancers is true. The policy cannot check what
#   firewalls of the nodes allow.
# custom:
#   severity: medium
#   kinds: ["Service"]
#   parameters:
#     type: object
#     properties:
#       ports:
#         description: Node ports that are allowed.
#         type: array
#         items: {type: integer, minimum: 1, maximum: 65535}
#         default: []
#       loadBalancers:
#         description: Whether to evaluate Services of type LoadBalancer, too.
#         type: boolean
#         default: false
package federator.exposure.node_port

violation contains {
	"msg": sprintf("port %d is open on every node", [port]),
	"details": {"port": port},
} if {
	evaluated
	some port in ports
	not port in input.parameters.ports
}

evaluated if input.object.spec.type == "NodePort"

evaluated if {
	input.object.spec.type == "LoadBalancer"
	input.parameters.loadBalancers
}

ports contains port if {
	port := input.object.spec.ports[_].nodePort
	is_number(port)
	port > 0
}
