package federator.availability.min_regions_test

import data.federator.availability.min_regions

members := {
	"fleet/eu-1": {"labels": {"region": "eu", "zone": "a"}},
	"fleet/eu-2": {"labels": {"region": "eu", "zone": "b"}},
	"fleet/us-1": {"labels": {"region": "us"}},
	"fleet/ap-1": {"labels": {"region": "ap"}},
	"fleet/lab": {"labels": {}},
}

web(replicas) := {"metadata": {"labels": {"federator.dev/multi-region": "true"}}, "spec": {"replicas": replicas}}

of(object) := {
	"ref": {"member": "fleet/eu-1", "kind": "Deployment.apps", "namespace": "shop", "name": "web"},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {"region": "eu"}},
	"parameters": {"mark": "federator.dev/multi-region", "region": "region", "regions": 2},
}

found(subject, objects) := violations if {
	violations := min_regions.violation with input as subject
		with data.fleet as {"by_name": {"Deployment.apps": {"shop": {"web": objects}}}, "members": members}
}

messages(subject, objects) := {v.msg | some v in found(subject, objects)}

in_all(names) := {name: web(2) | some name in names}

test_one_region if {
	found(of(web(2)), in_all(["fleet/eu-1", "fleet/eu-2"])) == {{
		"msg": "runs in 1 of 2 regions: eu",
		"details": {"regions": {"eu"}, "required": 2},
	}}
}

test_enough_regions if {
	messages(of(web(2)), in_all(["fleet/eu-1", "fleet/us-1"])) == set()
	messages(of(web(2)), in_all(["fleet/eu-1", "fleet/us-1", "fleet/ap-1"])) == set()
}

test_more_regions_wanted if {
	three := object.union(of(web(2)), {"parameters": {"regions": 3}})
	messages(three, in_all(["fleet/eu-1", "fleet/us-1"])) == {"runs in 2 of 3 regions: eu and us"}
	messages(three, in_all(["fleet/eu-1", "fleet/us-1", "fleet/ap-1"])) == set()
}

test_members_without_a_region if {
	messages(of(web(2)), in_all(["fleet/eu-1", "fleet/lab"])) == {"runs in 1 of 2 regions: eu"}
	messages(of(web(2)), in_all(["fleet/lab"])) == {"runs in none of 2 regions"}
}

test_scaled_to_zero if {
	messages(of(web(2)), {"fleet/eu-1": web(2), "fleet/us-1": web(0)}) == {"runs in 1 of 2 regions: eu"}
	messages(of(web(0)), {"fleet/eu-1": web(0)}) == {"runs in none of 2 regions"}
}

test_another_label_is_the_region if {
	zones := object.union(of(web(2)), {"parameters": {"region": "zone"}})
	messages(zones, in_all(["fleet/eu-1", "fleet/eu-2"])) == set()
	messages(zones, in_all(["fleet/eu-1", "fleet/us-1"])) == {"runs in 1 of 2 regions: a"}
}

test_marks if {
	plain := {"metadata": {"labels": {"app": "web"}}, "spec": {"replicas": 2}}
	messages(of(plain), {"fleet/eu-1": plain}) == set()
	messages(object.union(of(plain), {"parameters": {"mark": "app"}}), {"fleet/eu-1": plain}) == {"runs in 1 of 2 regions: eu"}
	messages(object.union(of({}), {"parameters": {"mark": ""}}), {"fleet/eu-1": {}}) == {"runs in 1 of 2 regions: eu"}
	messages(of(object.union(plain, {"metadata": {"labels": {"federator.dev/multi-region": ""}}})), {"fleet/eu-1": plain}) == {"runs in 1 of 2 regions: eu"}
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], {"": null}] {
		messages(of({"metadata": x}), in_all(["fleet/eu-1"])) == set()
		messages(of({"metadata": {"labels": x}}), in_all(["fleet/eu-1"])) == set()
		messages(of(web(x)), {"fleet/eu-1": web(x)}) == {"runs in 1 of 2 regions: eu"}
		messages(of(web(2)), {"fleet/eu-1": {"spec": x}, "fleet/us-1": {"spec": x}}) == set()
	}
	every x in [null, 1, true, [], {}] {
		messages(of({"metadata": {"labels": {"federator.dev/multi-region": x}}}), {}) == set()
	}
}
