package federator.network.overlapping_cidrs_test

import data.federator.network.overlapping_cidrs

of(member, kind, spec) := {
	"ref": {"member": member, "kind": kind, "namespace": "", "name": "x"},
	"object": {"spec": spec},
}

node(member, cidr) := of(member, "Node", {"podCIDR": cidr, "podCIDRs": [cidr]})

services(member, cidr) := of(member, "ServiceCIDR.networking.k8s.io", {"cidrs": [cidr]})

view(subject) := entries if entries := overlapping_cidrs.view with input as subject

# under gives the entries of a view by key, of objects.
under(name, objects) := {key: entries |
	some object in objects
	some key, _ in view(object)[name]
	entries := [{"ref": one.ref, "value": value} |
		some one in objects
		some value in view(one)[name][key]
	]
}

found(cidr, objects, parameters) := violations if {
	violations := overlapping_cidrs.violation with input as {
		"key": cidr,
		"entries": under("networks", objects)[cidr],
		"parameters": object.union({"of": ["Pods", "Services"], "shared": [], "group": ""}, parameters),
	}
		with data.fleet as {
			"views": {"federator.network.overlapping_cidrs": {"holders": under("holders", objects), "networks": {}}},
			"members": {
				"fleet/eu-1": {"labels": {"vpc": "a"}},
				"fleet/us-1": {"labels": {"vpc": "a"}},
				"fleet/ap-1": {"labels": {"vpc": "b"}},
				"fleet/lab": {"labels": {}},
			},
		}
}

messages(cidr, objects) := {v.msg | some v in found(cidr, objects, {})}

test_the_same_network if {
	objects := [node("fleet/eu-1", "10.244.1.0/24"), node("fleet/us-1", "10.244.1.0/24"), node("fleet/us-1", "10.244.2.0/24")]
	found("10.244.1.0/24", objects, {}) == {{
		"msg": "has addresses of Pods of fleet/eu-1 and Pods of fleet/us-1",
		"details": {"group": "", "of": {"Pods of fleet/eu-1", "Pods of fleet/us-1"}},
	}}
	messages("10.244.2.0/24", objects) == set()
}

test_a_part_of_a_larger_one if {
	objects := [node("fleet/eu-1", "10.96.1.0/24"), services("fleet/us-1", "10.96.0.0/12")]
	messages("10.96.1.0/24", objects) == {"has addresses of Pods of fleet/eu-1 and Services of fleet/us-1 (10.96.0.0/12)"}

	# It is told of once, by the smaller one.
	messages("10.96.0.0/12", objects) == set()
}

test_ipv6 if {
	objects := [node("fleet/eu-1", "fd00:10:244:1::/64"), node("fleet/us-1", "fd00:10:244::/56"), node("fleet/ap-1", "fd00:10:245::/56")]
	messages("fd00:10:244:1::/64", objects) == {"has addresses of Pods of fleet/eu-1 and Pods of fleet/us-1 (fd00:10:244::/56)"}
	messages("fd00:10:244::/56", objects) == set()
	messages("fd00:10:245::/56", objects) == set()
}

test_neighbours if {
	objects := [node("fleet/eu-1", "10.0.0.0/25"), node("fleet/us-1", "10.0.0.128/25"), node("fleet/ap-1", "10.0.1.0/24")]
	every cidr in ["10.0.0.0/25", "10.0.0.128/25", "10.0.1.0/24"] {
		messages(cidr, objects) == set()
	}
}

test_within_one_member if {
	objects := [node("fleet/eu-1", "10.0.1.0/24"), services("fleet/eu-1", "10.0.0.0/16")]
	messages("10.0.1.0/24", objects) == set()
}

test_what_is_judged if {
	objects := [node("fleet/eu-1", "10.0.1.0/24"), services("fleet/us-1", "10.0.0.0/16"), services("fleet/ap-1", "10.0.0.0/16")]
	count(found("10.0.1.0/24", objects, {})) == 1
	found("10.0.1.0/24", objects, {"of": ["Pods"]}) == set()
	found("10.0.1.0/24", objects, {"of": ["Services"]}) == set()
	count(found("10.0.0.0/16", objects, {"of": ["Services"]})) == 1
}

test_shared if {
	objects := [node("fleet/eu-1", "100.64.1.0/24"), node("fleet/us-1", "100.64.1.0/24")]
	found("100.64.1.0/24", objects, {"shared": ["100.64.0.0/10"]}) == set()
	found("100.64.1.0/24", objects, {"shared": ["100.64.1.0/24"]}) == set()
	count(found("100.64.1.0/24", objects, {"shared": ["100.64.1.0/25", "10.0.0.0/8", "fd00::/8"]})) == 1
}

test_groups if {
	objects := [node(member, "10.0.1.0/24") | some member in ["fleet/eu-1", "fleet/us-1", "fleet/ap-1", "fleet/lab"]]
	{v.msg | some v in found("10.0.1.0/24", objects, {"group": "vpc"})} == {"has addresses of Pods of fleet/eu-1 and Pods of fleet/us-1 where vpc is a"}

	# A larger network of another group does not matter.
	apart := [node("fleet/eu-1", "10.0.1.0/24"), node("fleet/ap-1", "10.0.0.0/16"), node("fleet/lab", "10.0.0.0/16")]
	found("10.0.1.0/24", apart, {"group": "vpc"}) == set()
}

prefix(cidr) := [key | some key, _ in view(node("fleet/eu-1", cidr)).holders]

test_prefixes if {
	prefix("10.0.0.0/8") == ["4:00001010"]
	prefix("192.168.255.0/20") == ["4:11000000101010001111"]
	prefix("255.255.255.255/32") == [sprintf("4:%s", [concat("", ["1" | some _ in numbers.range(1, 32)])])]
	every cidr in ["FD00:0:0:ab::/16", "fd00::/16", "fd00:1:2:3:4:5:6:7/16", "fd00:1::/16"] {
		prefix(cidr) == ["6:1111110100000000"]
	}
	prefix("1:2:3:4:5:6:7:8/128") == [concat("", array.concat(["6:"], [sprintf("%016b", [i]) | some i in numbers.range(1, 8)]))]
	prefix("1::8/128") == [concat("", array.concat(["6:"], [sprintf("%016b", [i]) | some i in [1, 0, 0, 0, 0, 0, 0, 8]]))]
	prefix("1:2:3:4:5:6:7::/128") == [concat("", array.concat(["6:"], [sprintf("%016b", [i]) | some i in [1, 2, 3, 4, 5, 6, 7, 0]]))]
	prefix("2001:db8:abcd:ef01::/64") == [concat("", array.concat(["6:"], [sprintf("%016b", [i]) | some i in [8193, 3512, 43981, 61185]]))]
}

# Where bits begin alike, networks overlap, and nowhere else.
test_prefixes_agree_with_the_builtin if {
	v4 := ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.128/25", "10.128.0.0/9", "11.0.0.0/8", "172.16.0.0/12", "172.31.0.0/16", "172.32.0.0/16"]
	v6 := ["fd00::/16", "fd00:0:1::/48", "fd00::1:0:0:0/80", "fd00:8000::/17", "fd01::/16", "2001:db8::/32", "2001:db8:8::/45", "2001:db8:f::/48"]
	every cidrs in [v4, v6] {
		every a in cidrs {
			every b in cidrs {
				net.cidr_contains(a, b) == startswith(prefix(b)[0], prefix(a)[0])
			}
		}
	}
}

test_what_is_no_network if {
	every cidr in ["", "10.0.0.0", "10.0.0.0/33", "300.0.0.0/8", "fd00::/129", "::ffff:10.0.0.0/120", "a/b", "10.0.0.0/-1", "0.0.0.0/0", "8.0.0.0/7", "fc00::/7", "::/0"] {
		prefix(cidr) == []
		view(node("fleet/eu-1", cidr)).networks == view(of("fleet/eu-1", "Node", {})).networks
	}
}

test_pod_cidr_alone if {
	keys := {key | some key, _ in view(of("fleet/eu-1", "Node", {"podCIDR": "10.0.1.0/24"})).networks}
	keys == {"10.0.1.0/24"}
	both := {key | some key, _ in view(of("fleet/eu-1", "Node", {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24", "fd00:1::/64"]})).networks}
	both == {"10.0.1.0/24", "fd00:1::/64"}
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], [[]], {"": null}] {
		every kind in ["Node", "ServiceCIDR.networking.k8s.io"] {
			every spec in [x, {"podCIDR": x, "podCIDRs": x, "cidrs": x}, {"podCIDRs": [x], "cidrs": [x]}] {
				keys := {key | some key, _ in view(of("fleet/eu-1", kind, spec)).holders}
				keys == set()
			}
		}
	}
}
