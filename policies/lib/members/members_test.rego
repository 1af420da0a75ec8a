package federator.lib.members_test

import data.federator.lib.members

fleet := {"members": {
	"fleet/eu-1": {"labels": {"region": "eu"}, "version": "", "apis": []},
	"fleet/eu-2": {"labels": {"region": "eu"}, "version": "", "apis": []},
	"fleet/us-1": {"labels": {"region": "us"}, "version": "", "apis": []},
	"fleet/lab": {"labels": {}, "version": "", "apis": []},
}}

peers(labels, label) := {name |
	some name, _ in fleet.members
	members.peer(name, label) with input as {"ref": {"member": "fleet/eu-1"}, "member": {"name": "fleet/eu-1", "labels": labels}}
		with data.fleet as fleet
}

test_few if {
	members.few({"a"}) == "a"
	members.few({"b", "a"}) == "a and b"
	members.few({"c", "b", "a"}) == "a, b and 1 more"
	members.few({sprintf("m%02d", [i]) | some i in numbers.range(1, 50)}) == "m01, m02 and 48 more"
}

test_group if {
	members.group("fleet/eu-1", "region") == "eu" with data.fleet as fleet
	members.group("fleet/lab", "region") == "" with data.fleet as fleet
	members.group("fleet/eu-1", "") == "" with data.fleet as fleet
}

test_peers if {
	peers({"region": "eu"}, "") == {"fleet/eu-2", "fleet/us-1", "fleet/lab"}
	peers({"region": "eu"}, "region") == {"fleet/eu-2"}
	peers({}, "region") == {"fleet/lab"}
}
