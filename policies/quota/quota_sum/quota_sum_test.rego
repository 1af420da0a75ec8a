package federator.quota.quota_sum_test

import data.federator.quota.quota_sum

namespaces(places) := [{"ref": {"member": member, "kind": "Namespace", "namespace": "", "name": name}, "value": true} |
	some place in places
	parts := split(place, "/")
	member := concat("/", array.slice(parts, 0, 2))
	name := parts[2]
]

# found judges the owner shop, whose namespaces have the quotas that are given.
found(quotas, parameters) := violations if {
	entries := {key: [{"ref": {"kind": "ResourceQuota"}, "value": amounts} | some amounts in list] |
		some key, list in quotas
		count(list) > 0
	}
	violations := quota_sum.violation with input as {
		"key": "owner=shop",
		"entries": namespaces(object.keys(quotas)),
		"parameters": object.union({"label": "owner", "budgets": {}, "default": {}}, parameters),
	}
		with data.fleet as {"views": {"federator.quota.quota_sum": {"quotas": entries, "owners": {}}}}
}

messages(quotas, budget) := {v.msg | some v in found(quotas, {"budgets": {"shop": budget}})}

views(kind, fields) := entries if {
	entries := quota_sum.view with input as {
		"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": "x"},
		"object": fields,
	}
}

quotas_of(kind, spec) := {key: values | some key, values in views(kind, {"spec": spec}).quotas}

amounts(hard) := {amount | some _, values in quotas_of("ResourceQuota", {"hard": hard}); some amount in values}

owners(kind, labels) := {key | some key, _ in views(kind, {"metadata": {"labels": labels}}).owners}

test_over if {
	found({"fleet/eu-1/shop": [{"requests.cpu": 8}], "fleet/us-1/shop": [{"requests.cpu": 4.5}]}, {"budgets": {"shop": {"requests.cpu": "10"}}}) == {{
		"msg": "requests.cpu adds up to 12.5, more than 10, in fleet/eu-1/shop and fleet/us-1/shop",
		"details": {"resource": "requests.cpu", "budget": "10", "total": 12.5, "namespaces": {"fleet/eu-1/shop": 8, "fleet/us-1/shop": 4.5}},
	}}
}

test_equal_amounts_are_all_counted if {
	count(messages({"fleet/eu-1/shop": [{"pods": 6}], "fleet/us-1/shop": [{"pods": 6}]}, {"pods": "11"})) == 1
}

test_within if {
	quotas := {"fleet/eu-1/shop": [{"requests.cpu": 8, "requests.memory": 1}], "fleet/us-1/shop": [{"requests.cpu": 2}]}
	messages(quotas, {"requests.cpu": "10"}) == set()
	messages(quotas, {"requests.cpu": "10000m"}) == set()
	messages(quotas, {}) == set()
}

test_bytes if {
	quotas := {"fleet/eu-1/shop": [{"requests.memory": 1610612736}], "fleet/us-1/shop": [{"requests.memory": 1073741824}]}
	messages(quotas, {"requests.memory": "2Gi"}) == {"requests.memory adds up to 2.5Gi, more than 2Gi, in fleet/eu-1/shop and fleet/us-1/shop"}
	messages({"fleet/eu-1/shop": [{"requests.storage": 1000}]}, {"requests.storage": "999"}) == {"requests.storage adds up to 1000, more than 999, in fleet/eu-1/shop"}
}

test_the_smallest_quota_holds if {
	messages({"fleet/eu-1/shop": [{"pods": 20}, {"pods": 10, "services": 1}, {"services": 5}]}, {"pods": "10"}) == set()
	messages({"fleet/eu-1/shop": [{"pods": 20}, {"services": 5}]}, {"pods": "10"}) == {"pods adds up to 20, more than 10, in fleet/eu-1/shop"}
}

test_no_quota if {
	quotas := {"fleet/eu-1/shop": [{"pods": 1}], "fleet/us-1/shop": [{"services": 1}], "fleet/us-2/shop": []}
	messages(quotas, {"pods": "10"}) == {"pods has no quota in fleet/us-1/shop and fleet/us-2/shop"}
	messages({"fleet/eu-1/shop": [{"pods": 0}]}, {"pods": "0"}) == set()
}

test_budgets if {
	quotas := {"fleet/eu-1/shop": [{"pods": 20}]}
	found(quotas, {"default": {"pods": "20"}}) == set()
	count(found(quotas, {"default": {"pods": "10"}})) == 1
	found(quotas, {"default": {"pods": "10"}, "budgets": {"shop": {"pods": "20"}, "blog": {"pods": "1"}}}) == set()
	found(quotas, {}) == set()
}

test_other_labels_are_not_evaluated if {
	found({"fleet/eu-1/shop": [{"pods": 20}]}, {"label": "team", "default": {"pods": "10"}}) == set()
}

test_owners if {
	owners("Namespace", {"owner": "shop", "team": "web", "app": "x", "tenant": ""}) == {"owner=shop", "team=web"}
	owners("Namespace", {"federator.dev/owner": "shop"}) == {"federator.dev/owner=shop"}
	owners("ResourceQuota", {"owner": "shop"}) == set()
}

test_quotas if {
	quotas_of("ResourceQuota", {"hard": {"pods": "5"}}) == {"fleet/eu-1/shop": {{"pods": 5}}}
	quotas_of("Namespace", {"hard": {"pods": "5"}}) == {}
	amounts({"cpu": "1", "requests.cpu": "500m", "memory": "1Ki", "limits.memory": "1k"}) == {{"requests.cpu": 0.5, "requests.memory": 1024, "limits.memory": 1000}}
}

test_quotas_with_scopes if {
	every spec in [{"scopes": ["BestEffort"]}, {"scopeSelector": {"matchExpressions": []}}, {"scopes": "x"}] {
		quotas_of("ResourceQuota", object.union(spec, {"hard": {"pods": "5"}})) == {}
	}
	quotas_of("ResourceQuota", {"scopes": null, "scopeSelector": null, "hard": {"pods": "5"}}) == {"fleet/eu-1/shop": {{"pods": 5}}}
}

test_quantities if {
	every text, number in {"0": 0, "5": 5, "1.5": 1.5, "100m": 0.1, "2k": 2000, "3Mi": 3145728, "1E": 1000000000000000000, "500u": 0.0005, "5000000n": 0.005, "1e3": 1000, "12E2": 1200} {
		amounts({"pods": text}) == {{"pods": number}}
	}
	amounts({"pods": 7}) == {{"pods": 7}}
	every text in ["", "many", "-1", "1 Gi", "1Qi", "1e999", "0x10", "1__0", "5%", null, true, [], {}] {
		amounts({"pods": text}) == {{}}
	}
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], [null]] {
		owners("Namespace", x) == set()
		amounts(x) == {{}}
		count(quotas_of("ResourceQuota", x)) < 2
	}
	every x in [null, 1, true, [], {}] {
		owners("Namespace", {"owner": x}) == set()
	}
}
