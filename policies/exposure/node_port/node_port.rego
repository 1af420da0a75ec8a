# METADATA
# title: No ports of nodes
# description: |
#   A Service of type NodePort opens a port on every node of its member, past Ingress,
#   TLS and whatever else guards the entrance. Load balancers have such ports, too,
#   unless allocateLoadBalancerNodePorts is false; they are judged on request only.
#   What firewalls of the nodes let through, this policy cannot see.
# custom:
#   severity: medium
#   kinds: ["Service"]
#   parameters:
#     type: object
#     properties:
#       ports:
#         description: Ports of nodes that may be open.
#         type: array
#         items: {type: integer, minimum: 1, maximum: 65535}
#         default: []
#       loadBalancers:
#         description: Whether Services of type LoadBalancer are judged, too.
#         type: boolean
#         default: false
package federator.exposure.node_port

violation contains {
	"msg": sprintf("port %d is open on every node", [port]),
	"details": {"port": port},
} if {
	judged
	some port in ports
	not port in input.parameters.ports
}

judged if input.object.spec.type == "NodePort"

judged if {
	input.object.spec.type == "LoadBalancer"
	input.parameters.loadBalancers
}

ports contains port if {
	port := input.object.spec.ports[_].nodePort
	is_number(port)
	port > 0
}
