package federator.upgrades.version_skew_test

import data.federator.upgrades.version_skew

member(version, stage) := {"labels": {"stage": stage}, "version": version, "apis": []}

views(kubelets) := {"federator.upgrades.version_skew": {"kubelets": {key: [{"ref": {"kind": "Node", "name": name}, "value": true} | some name in names] |
	some key, names in kubelets
}}}

found(members, parameters) := violations if {
	violations := version_skew.violation with input as {
		"member": {"name": "fleet/eu-1", "labels": members["fleet/eu-1"].labels},
		"parameters": object.union({"minors": 2, "kubelets": 3, "group": ""}, parameters),
	}
		with data.fleet as {"members": members, "names": sort(object.keys(members)), "views": views({})}
}

messages(members, parameters) := {v.msg | some v in found(members, parameters)}

of(own, others) := object.union({"fleet/eu-1": member(own, "prod")}, others)

test_behind if {
	found(of("v1.31.4", {"fleet/us-1": member("v1.34.0", "prod"), "fleet/ap-1": member("v1.33.1", "prod")}), {}) == {{
		"msg": "runs v1.31.4, 3 minor versions behind fleet/us-1 (v1.34.0)",
		"details": {"version": "v1.31.4", "newest": {"fleet/us-1"}},
	}}
	messages(of("v1.9.11", {"fleet/b": member("v1.34.1", "prod"), "fleet/a": member("v1.34.0", "prod")}), {}) == {"runs v1.9.11, 25 minor versions behind fleet/a and fleet/b (v1.34.0)"}
}

test_close_enough if {
	messages(of("v1.32.4", {"fleet/us-1": member("v1.34.0", "prod")}), {}) == set()
	messages(of("v1.32.4", {}), {}) == set()
}

test_ahead if {
	messages(of("v1.34.4", {"fleet/us-1": member("v1.28.0", "prod")}), {}) == set()
}

test_minors if {
	newer := of("v1.33.0", {"fleet/us-1": member("v1.34.0", "prod")})
	messages(newer, {"minors": 0}) == {"runs v1.33.0, 1 minor version behind fleet/us-1 (v1.34.0)"}
	messages(newer, {"minors": 1}) == set()
}

test_groups if {
	newer := of("v1.30.0", {"fleet/us-1": member("v1.34.0", "test"), "fleet/ap-1": member("v1.33.0", "prod")})
	messages(newer, {"group": "stage"}) == {"runs v1.30.0, 3 minor versions behind fleet/ap-1 (v1.33.0)"}
	messages(newer, {"group": "stage", "minors": 3}) == set()
	messages(of("v1.30.0", {"fleet/lab": {"labels": {}, "version": "v1.34.0"}}), {"group": "stage"}) == set()
}

test_versions_that_are_not_known if {
	every version in ["", "v2.0.0", "unknown", null, {}] {
		messages(of("v1.30.0", {"fleet/us-1": object.union(member("", "prod"), {"version": version})}), {}) == set()
		messages(object.union(of("", {"fleet/us-1": member("v1.34.0", "prod")}), {"fleet/eu-1": {"version": version}}), {}) == set()
	}
}

nodes(own, kubelets, limit) := {v.msg |
	some v in version_skew.violation with input as {
		"member": {"name": "fleet/eu-1", "labels": {}},
		"parameters": {"minors": 2, "kubelets": limit, "group": ""},
	}
		with data.fleet as {
			"members": {"fleet/eu-1": member(own, "prod")},
			"names": ["fleet/eu-1"],
			"views": views(kubelets),
		}
}

keys(status) := {key |
	views := version_skew.view with input as {"ref": {"member": "fleet/eu-1", "kind": "Node", "name": "n1"}, "object": {"status": status}}
	some key, _ in views.kubelets
}

test_kubelets_behind if {
	nodes("v1.34.1", {"fleet/eu-1 1.30": ["n1", "n2"], "fleet/eu-1 1.31": ["n3"]}, 3) == {"runs v1.34.1, and kubelets of 1.30 on n1 and n2"}
	nodes("v1.34.1", {"fleet/eu-1 1.30": ["n1"], "fleet/eu-1 1.14": ["n2"]}, 4) == {"runs v1.34.1, and kubelets of 1.14 on n2"}
	nodes("v1.34.1", {"fleet/eu-1 1.33": ["n1"]}, 0) == {"runs v1.34.1, and kubelets of 1.33 on n1"}
	nodes("v1.34.1", {"fleet/eu-1 1.14": ["n1"]}, 20) == set()
}

test_kubelets_ahead if {
	nodes("v1.34.1", {"fleet/eu-1 1.35": ["n1"], "fleet/eu-1 1.34": ["n2"]}, 3) == {"runs v1.34.1, and kubelets of 1.35 on n1"}
}

test_kubelets_of_other_members if {
	nodes("v1.34.1", {"fleet/eu-2 1.20": ["n1"], "fleet/eu-10 1.20": ["n2"]}, 3) == set()
}

test_kubelets_are_not_looked_at if {
	nodes("v1.34.1", {"fleet/eu-1 1.20": ["n1"]}, -1) == set()
	nodes("", {"fleet/eu-1 1.20": ["n1"]}, 3) == set()
}

test_view if {
	keys({"nodeInfo": {"kubeletVersion": "v1.31.4-gke.1"}}) == {"fleet/eu-1 1.31"}
	every x in [null, "", "x", 1, true, [], {}, [null], {"": null}] {
		keys(x) == set()
		keys({"nodeInfo": x}) == set()
		keys({"nodeInfo": {"kubeletVersion": x}}) == set()
	}
}
