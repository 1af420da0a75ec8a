# METADATA
# title: A host is served from one place
# description: |
#   Where DNS sends a host, only one member answers: the same host in a second member
#   is a takeover, or a move that nobody finished. Compared are the hosts of Ingresses
#   and HTTPRoutes, across all members, and across the namespaces of one; within a
#   namespace of a member, several objects may share the paths of a host. Hosts that
#   a balancer spreads over members, and members that back each other, are parameters.
#   A host is compared as it is written: whether *.example.org of one member covers
#   a.example.org of another this policy does not ask, nor which hosts an HTTPRoute
#   without any takes from its Gateway, nor what DNS says. As long as Ingresses or
#   HTTPRoutes of a member are not all known, verdicts are Unknown.
# custom:
#   severity: high
#   kinds: ["Ingress.networking.k8s.io", "HTTPRoute.gateway.networking.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       sharedHosts:
#         description: Hosts that may be served from several places; * stands for one label, ** for any number of them.
#         type: array
#         items: {type: string, pattern: '^[a-zA-Z0-9*.-]+$', maxLength: 253}
#         default: []
#       sharingLabels:
#         description: Labels of members. Those that have the same value of one of them may serve the same hosts.
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
