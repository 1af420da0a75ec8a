# METADATA
# title: A host is served from one place
# description: |
#   DNS sends requests for a host to one member: the same host in a second member is a
#   takeover, or an unfinished migration. The hosts of Ingresses and HTTPRoutes are
#   compared across all members, and across the namespaces of a member; within a
#   namespace, several objects may share a host. Hosts that a load balancer
#   distributes over members, and members that back each other up, can be set as
#   parameters. Hosts are compared literally: the policy does not check whether
#   *.example.org in one member covers a.example.org in another, which hosts an
#   HTTPRoute without hosts inherits from its Gateway, or what DNS returns. Verdicts
#   are Unknown while the Ingresses or HTTPRoutes of a member are incomplete.
# custom:
#   severity: high
#   kinds: ["Ingress.networking.k8s.io", "HTTPRoute.gateway.networking.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       sharedHosts:
#         description: Hosts that may be served from several places; * matches one label, ** any number of labels.
#         type: array
#         items: {type: string, pattern: '^[a-zA-Z0-9*.-]+$', maxLength: 253}
#         default: []
#       sharingLabels:
#         description: Labels of members. Members with the same value of one of them may serve the same hosts.
#         type: array
#         items: {type: string, minLength: 1}
#         default: []
package federator.network.unique_host

import data.federator.lib.members

view.hosts[host] contains true if some host in hosts

violation contains {
	"msg": sprintf("host %s is also served from %s", [host, members.few({place(ref) | some ref in others})]),
	"details": {"host": host, "others": others},
} if {
	some host in hosts
	not shared(host)
	others := [claim.ref |
		some claim in data.fleet.views["federator.network.unique_host"].hosts[host]
		elsewhere(claim.ref)
	]
	count(others) > 0
}

hosts contains host if {
	input.ref.kind == "Ingress.networking.k8s.io"
	some rule in input.object.spec.rules
	host := rule.host
	is_string(host)
	host != ""
}

hosts contains host if {
	input.ref.kind == "HTTPRoute.gateway.networking.k8s.io"
	some host in input.object.spec.hostnames
	is_string(host)
	host != ""
}

elsewhere(ref) if {
	ref.member == input.ref.member
	ref.namespace != input.ref.namespace
}

elsewhere(ref) if {
	ref.member != input.ref.member
	not sharing(ref.member)
}

place(ref) := sprintf("namespace %s", [ref.namespace]) if ref.member == input.ref.member

place(ref) := ref.member if ref.member != input.ref.member

shared(host) if {
	some pattern in input.parameters.sharedHosts
	glob.match(pattern, ["."], host)
}

sharing(member) if {
	some label in input.parameters.sharingLabels
	input.member.labels[label] == data.fleet.members[member].labels[label]
}
