# Package federator.lib.members helps to compare what members have.
package federator.lib.members

# few lists some of a set of members, or of other names, so that a message stays short
# however large the fleet is.
few(names) := concat(" and ", sort(names)) if count(names) < 3

few(names) := sprintf("%s, %s and %d more", [list[0], list[1], count(list) - 2]) if {
	count(names) > 2
	list := sort(names)
}

# group is the value of a label of a member: "" if the member does not have it, and for all
# members if no label is set.
group(_, "") := ""

group(member, label) := object.get(data.fleet.members[member], ["labels", label], "") if label != ""

# peer holds for the members that the subject is compared with: all others, or those with
# the same value of the label.
peer(member, label) if {
	member != input.ref.member
	label == ""
}

peer(member, label) if {
	member != input.ref.member
	label != ""
	group(member, label) == object.get(input.member.labels, label, "")
}
