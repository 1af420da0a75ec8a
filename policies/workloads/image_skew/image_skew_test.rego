package federator.workloads.image_skew_test

import data.federator.workloads.image_skew

kinds := {"Deployment.apps", "StatefulSet.apps", "DaemonSet.apps"}

running(images) := {"spec": {"template": {"spec": {"containers": [{"name": name, "image": image} | some name, image in images]}}}}

of(kind, object) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": "web"},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {"stage": "prod"}},
	"parameters": {"group": ""},
}

found(subject, others) := violations if {
	violations := image_skew.violation with input as subject
		with data.fleet as {
			"by_name": {subject.ref.kind: {"shop": {"web": object.union({"fleet/eu-1": subject.object}, others)}}},
			"members": {
				"fleet/eu-1": {"labels": {"stage": "prod"}},
				"fleet/us-1": {"labels": {"stage": "prod"}},
				"fleet/lab": {"labels": {}},
			},
		}
}

messages(subject, others) := {v.msg | some v in found(subject, others)}

skew(here, there) := messages(of("Deployment.apps", running({"web": here})), {"fleet/us-1": running({"web": there})})

sha(digit) := sprintf("sha256:%064d", [digit])

test_another_tag if {
	every kind in kinds {
		found(of(kind, running({"web": "shop/web:1.2", "log": "log:7"})), {"fleet/us-1": running({"web": "shop/web:1.3", "log": "log:7"})}) == {{
			"msg": "container web runs 1.2 here and 1.3 in fleet/us-1",
			"details": {"container": "web", "image": "shop/web:1.2", "others": {{"member": "fleet/us-1", "image": "shop/web:1.3"}}},
		}}
	}
	skew("web", "web:1") == {"container web runs latest here and 1 in fleet/us-1"}
}

test_the_same if {
	skew("shop/web:1.2", "shop/web:1.2") == set()
	skew("eu.example:5000/shop/web:1.2", "us.example/mirror/web:1.2") == set()
}

test_digests if {
	a := sprintf("web@%s", [sha(1)])
	b := sprintf("web@%s", [sha(2)])
	skew(a, b) == {sprintf("container web runs %s here and %s in fleet/us-1", [sha(1), sha(2)])}
	skew(a, a) == set()
	skew(sprintf("web:1@%s", [sha(1)]), sprintf("web:2@%s", [sha(1)])) == set()
	count(skew(sprintf("web:1@%s", [sha(1)]), sprintf("web:1@%s", [sha(2)]))) == 1
}

test_a_tag_and_a_digest if {
	skew("web:1", sprintf("web@%s", [sha(1)])) == set()
	skew("web:1", sprintf("web:1@%s", [sha(1)])) == set()
	count(skew("web:1", sprintf("web:2@%s", [sha(1)]))) == 1
}

test_init_containers if {
	here := {"spec": {"template": {"spec": {"initContainers": [{"name": "migrate", "image": "db:1"}], "containers": null}}}}
	there := {"spec": {"template": {"spec": {"initContainers": [{"name": "migrate", "image": "db:2"}]}}}}
	messages(of("Deployment.apps", here), {"fleet/us-1": there}) == {"container migrate runs 1 here and 2 in fleet/us-1"}
}

test_many_members if {
	others := {"fleet/us-1": running({"web": "web:2"}), "fleet/lab": running({"web": "web:3"})}
	subject := of("Deployment.apps", running({"web": "web:1"}))
	messages(subject, others) == {"container web runs 1 here and 2 and 3 in fleet/lab and fleet/us-1"}
	messages(object.union(subject, {"parameters": {"group": "stage"}}), others) == {"container web runs 1 here and 2 in fleet/us-1"}
}

test_alone if {
	messages(of("Deployment.apps", running({"web": "web:1"})), {}) == set()
	messages(of("Deployment.apps", running({"web": "web:1"})), {"fleet/us-1": running({"other": "web:2"})}) == set()
	image_skew.violation == set() with input as of("Deployment.apps", running({"web": "web:1"}))
		with data.fleet as {"by_name": {}, "members": {}}
}

test_two_containers_of_one_name if {
	twice := {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:1"}, {"name": "web", "image": "web:2"}]}}}}
	messages(of("Deployment.apps", twice), {"fleet/us-1": twice}) == {"container web runs 1 here and 2 in fleet/us-1", "container web runs 2 here and 1 in fleet/us-1"}
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], [[]], {"": null}] {
		odd := [
			{"spec": x},
			{"spec": {"template": x}},
			{"spec": {"template": {"spec": x}}},
			{"spec": {"template": {"spec": {"containers": x, "initContainers": x}}}},
			{"spec": {"template": {"spec": {"containers": [x, {"name": x}, {"image": x}]}}}},
		]
		every object in odd {
			messages(of("Deployment.apps", object), {"fleet/us-1": running({"web": "web:1"})}) == set()
			messages(of("Deployment.apps", running({"web": "web:1"})), {"fleet/us-1": object}) == set()
		}
	}
	count(skew("", "web:1")) == 1
	every x in [null, 1, true, [], {}] {
		skew("web:1", x) == set()
		skew(x, "web:1") == set()
	}
}
