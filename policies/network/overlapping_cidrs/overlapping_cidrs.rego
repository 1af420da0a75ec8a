# METADATA
# title: Networks of members do not overlap
# description: |
#   Members whose Pods can reach each other, by peering, a service mesh or a VPN, need
#   distinct networks: an address in two of them is only reachable in one. The Pod
#   CIDRs of Nodes and the CIDRs of ServiceCIDRs are compared with equal and larger
#   networks of other members; each network is evaluated once, however many members
#   have it. Members that are not routed to each other may overlap: separate them by a
#   label, or exclude a kind of network. Not evaluated are networks larger than /8
#   (IPv4) or /16 (IPv6), overlay networks that do not use the CIDRs of Nodes, and
#   Service networks of members without ServiceCIDRs (before Kubernetes 1.33).
#   Verdicts are Unknown while the Nodes or ServiceCIDRs of a member are incomplete.
# custom:
#   severity: high
#   subject: view.networks
#   kinds: ["Node", "ServiceCIDR.networking.k8s.io"]
#   parameters:
#     type: object
#     properties:
#       of:
#         description: Kinds of networks to evaluate.
#         type: array
#         items: {type: string, enum: [Pods, Services]}
#         default: [Pods, Services]
#       shared:
#         description: Networks that members may share because they are not routed, such as 100.64.0.0/10.
#         type: array
#         items: {type: string, pattern: '^[0-9a-fA-F.:]{2,45}/[0-9]{1,3}$'}
#         default: []
#       group:
#         description: Label of members. Only members with the same value of it, or without it, are compared with each other. If empty, all members are compared.
#         type: string
#         default: ""
package federator.network.overlapping_cidrs

import data.federator.lib.members

# The evaluated networks, as they are written, and what they are of.
view.networks[cidr] contains use if {
	some cidr, _ in prefixes
}

# The same by their prefixes, which start with those of larger networks.
view.holders[prefix] contains {"cidr": cidr, "of": use} if {
	some cidr, prefix in prefixes
}

violation contains {
	"msg": sprintf("has addresses of %s%s", [members.few(who), within(group)]),
	"details": {"group": group, "of": who},
} if {
	not shared
	some group, at in owners
	count(at) > 1
	who := {name | some names in at; some name in names}
}

# owners are what a network is of by group and member, in groups that have the network
# itself and not only a larger one.
owners[group][member] contains name if {
	some holder in holders
	holder.value.of in input.parameters.of
	member := holder.ref.member
	group := members.group(member, input.parameters.group)
	group in groups
	name := named(holder)
}

groups contains members.group(own.ref.member, input.parameters.group) if {
	some own in input.entries
	own.value in input.parameters.of
}

# holders have the network, or one that contains it.
holders := [holder |
	prefix := prefix_of(input.key)
	some bits in numbers.range(smallest[substring(prefix, 0, 2)], count(prefix))
	some holder in data.fleet.views["federator.network.overlapping_cidrs"].holders[substring(prefix, 0, bits)]
]

# smallest are the lengths of the shortest prefixes, with the two characters before.
smallest := {"4:": 10, "6:": 18}

named(holder) := sprintf("%s of %s", [holder.value.of, holder.ref.member]) if holder.value.cidr == input.key

named(holder) := sprintf("%s of %s (%s)", [holder.value.of, holder.ref.member, holder.value.cidr]) if holder.value.cidr != input.key

shared if {
	some cidr in input.parameters.shared
	net.cidr_contains(cidr, input.key)
}

within("") := ""

within(group) := sprintf(" where %s is %s", [input.parameters.group, group]) if group != ""

use := "Pods" if input.ref.kind == "Node"

use := "Services" if input.ref.kind == "ServiceCIDR.networking.k8s.io"

cidrs contains cidr if {
	input.ref.kind == "Node"
	some cidr in input.object.spec.podCIDRs
}

cidrs contains input.object.spec.podCIDR if {
	input.ref.kind == "Node"
}

cidrs contains cidr if {
	input.ref.kind == "ServiceCIDR.networking.k8s.io"
	some cidr in input.object.spec.cidrs
}

# prefixes are the networks of the object that are not too large to be compared.
prefixes[cidr] := prefix if {
	some cidr in cidrs
	prefix := prefix_of(cidr)
	count(prefix) >= smallest[substring(prefix, 0, 2)]
}

# prefix_of writes a network as its bits, after 4: or 6:.
prefix_of(cidr) := concat("", ["4:", substring(bits, 0, to_number(parts[1]))]) if {
	parts := split_cidr(cidr)
	not contains(parts[0], ":")
	bits := concat("", [sprintf("%08b", [to_number(octet)]) | some octet in split(parts[0], ".")])
}

prefix_of(cidr) := concat("", ["6:", substring(bits, 0, to_number(parts[1]))]) if {
	parts := split_cidr(cidr)
	contains(parts[0], ":")
	not contains(parts[0], ".")
	bits := concat("", [nibbles[digit] | some digits in hexadecimal(lower(parts[0])); some digit in split(digits, "")])
}

split_cidr(cidr) := split(cidr, "/") if {
	is_string(cidr)
	regex.match(`^[0-9a-fA-F.:]{2,45}/[0-9]{1,3}$`, cidr)
	net.cidr_is_valid(cidr)
}

# hexadecimal are the eight groups of four digits of an address.
hexadecimal(address) := [padded(group) | some group in split(address, ":")] if not contains(address, "::")

hexadecimal(address) := array.concat(array.concat(before, zeroes), after) if {
	contains(address, "::")
	halves := split(address, "::")
	before := [padded(group) | some group in split(halves[0], ":"); group != ""]
	after := [padded(group) | some group in split(halves[1], ":"); group != ""]
	zeroes := ["0000" | some _ in numbers.range(1, (8 - count(before)) - count(after))]
}

padded(group) := substring(concat("", ["0000", group]), count(group), 4)

nibbles := {
	"0": "0000", "1": "0001", "2": "0010", "3": "0011", "4": "0100", "5": "0101", "6": "0110", "7": "0111",
	"8": "1000", "9": "1001", "a": "1010", "b": "1011", "c": "1100", "d": "1101", "e": "1110", "f": "1111",
}
