package federator.network.default_deny_missing_test

import data.federator.network.default_deny_missing

shop := {
	"ref": {"member": "fleet/eu-1", "kind": "Namespace", "namespace": "", "name": "shop"},
	"object": {"metadata": {"name": "shop"}},
	"member": {"name": "fleet/eu-1", "labels": {"stage": "prod"}},
	"parameters": {"directions": ["Ingress", "Egress"], "group": ""},
}

by(member, direction) := {
	"ref": {"member": member, "kind": "NetworkPolicy.networking.k8s.io", "namespace": "shop", "name": "deny"},
	"value": direction,
}

found(subject, entries) := violations if {
	violations := default_deny_missing.violation with input as subject
		with data.fleet as {
			"views": {"federator.network.default_deny_missing": {"closed": {"shop": entries}}},
			"members": {
				"fleet/eu-1": {"labels": {"stage": "prod"}},
				"fleet/us-1": {"labels": {"stage": "prod"}},
				"fleet/lab": {"labels": {"stage": "test"}},
			},
		}
}

messages(subject, entries) := {v.msg | some v in found(subject, entries)}

closed(spec) := directions if {
	views := default_deny_missing.view with input as {
		"ref": {"member": "fleet/eu-1", "kind": "NetworkPolicy.networking.k8s.io", "namespace": "shop", "name": "deny"},
		"object": {"spec": spec},
	}
	directions := object.get(views.closed, "shop", set())
}

test_open_here if {
	found(shop, [by("fleet/us-1", "Ingress")]) == {{
		"msg": "no NetworkPolicy denies Ingress by default, unlike in fleet/us-1",
		"details": {"direction": "Ingress", "others": {"fleet/us-1"}},
	}}
	messages(shop, [by("fleet/us-1", "Ingress"), by("fleet/lab", "Egress"), by("fleet/lab", "Ingress")]) == {
		"no NetworkPolicy denies Ingress by default, unlike in fleet/lab and fleet/us-1",
		"no NetworkPolicy denies Egress by default, unlike in fleet/lab",
	}
}

test_closed_here if {
	messages(shop, [by("fleet/eu-1", "Ingress"), by("fleet/us-1", "Ingress")]) == set()
	messages(shop, [by("fleet/eu-1", "Ingress"), by("fleet/us-1", "Egress")]) == {"no NetworkPolicy denies Egress by default, unlike in fleet/us-1"}
}

test_open_everywhere if {
	messages(shop, []) == set()
	default_deny_missing.violation == set() with input as shop with data.fleet as {"views": {"federator.network.default_deny_missing": {"closed": {}}}, "members": {}}
}

test_parameters if {
	both := [by("fleet/us-1", "Ingress"), by("fleet/lab", "Egress")]
	messages(object.union(shop, {"parameters": {"directions": ["Egress"]}}), both) == {"no NetworkPolicy denies Egress by default, unlike in fleet/lab"}
	messages(object.union(shop, {"parameters": {"group": "stage"}}), both) == {"no NetworkPolicy denies Ingress by default, unlike in fleet/us-1"}
	messages(object.union(shop, {"parameters": {"directions": []}}), both) == set()
}

test_policies_themselves_are_not_evaluated if {
	messages(object.union(shop, {"ref": {"kind": "NetworkPolicy.networking.k8s.io"}}), [by("fleet/us-1", "Ingress")]) == set()
}

test_what_closes if {
	closed({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}) == {"Ingress", "Egress"}
	closed({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}) == {"Ingress"}
	closed({"podSelector": {"matchLabels": {}, "matchExpressions": []}, "policyTypes": ["Egress"], "egress": null}) == {"Egress"}
	closed({"podSelector": {}}) == {"Ingress"}
	closed({"podSelector": {}, "egress": [{}]}) == {"Ingress"}
}

test_what_does_not_close if {
	closed({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]}) == set()
	closed({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "policyTypes": ["Ingress"]}) == set()
	closed({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}) == set()
	closed({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": 53}]}]}) == set()
	closed({"policyTypes": ["Ingress"]}) == set()
	count({key | some key, _ in default_deny_missing.view.closed with input as object.union(shop, {"object": {"spec": {"podSelector": {}}}})}) == 0
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], {"": null}] {
		closed(x) == set()
		closed({"podSelector": {}, "policyTypes": ["Ingress", x], "egress": x}) == {"Ingress"}
		messages(object.union(shop, {"object": x}), [by("fleet/us-1", "Ingress")]) == {"no NetworkPolicy denies Ingress by default, unlike in fleet/us-1"}
	}
	every x in ["", "x", 1, true, {}, [null], {"": null}] {
		closed({"podSelector": {}, "policyTypes": x}) == set()
		closed({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": x}) == set()
	}
	every x in [null, "", "x", 1, true, [], [null]] {
		closed({"podSelector": x, "policyTypes": ["Ingress"]}) == set()
	}
	every x in ["", "x", 1, true, [null], {"": null}] {
		closed({"podSelector": {"matchLabels": x, "matchExpressions": x}, "policyTypes": ["Ingress"]}) == set()
	}
}
