package federator.tenancy.namespace_owner_test

import data.federator.tenancy.namespace_owner

parameters := {"label": "owner", "exempt": ["default", "kube-*"], "group": ""}

of(name, object) := {
	"ref": {"member": "fleet/eu-1", "kind": "Namespace", "namespace": "", "name": name},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {"company": "a"}},
	"parameters": parameters,
}

owned(owner) := {"metadata": {"labels": {"owner": owner}}}

found(subject, elsewhere) := violations if {
	violations := namespace_owner.violation with input as subject
		with data.fleet as {
			"by_name": {"Namespace": {"": {subject.ref.name: object.union({"fleet/eu-1": subject.object}, elsewhere)}}},
			"members": {
				"fleet/eu-1": {"labels": {"company": "a"}},
				"fleet/us-1": {"labels": {"company": "a"}},
				"fleet/ap-1": {"labels": {"company": "b"}},
				"fleet/lab": {"labels": {}},
			},
		}
}

messages(subject, elsewhere) := {v.msg | some v in found(subject, elsewhere)}

test_another_owner if {
	found(of("shop", owned("team-a")), {"fleet/us-1": owned("team-b"), "fleet/ap-1": owned("team-a")}) == {{
		"msg": "owner is team-a here and team-b in fleet/us-1",
		"details": {"owner": "team-a", "others": {"team-b": {"fleet/us-1"}}},
	}}
}

test_several_owners if {
	elsewhere := {"fleet/us-1": owned("team-b"), "fleet/ap-1": owned("team-c"), "fleet/lab": owned("team-b")}
	messages(of("shop", owned("team-a")), elsewhere) == {"owner is team-a here and team-b in fleet/lab and fleet/us-1; team-c in fleet/ap-1"}
}

test_one_owner if {
	messages(of("shop", owned("team-a")), {"fleet/us-1": owned("team-a")}) == set()
	messages(of("shop", owned("team-a")), {}) == set()
}

test_no_owner if {
	found(of("shop", owned("")), {}) == {{"msg": "label owner is missing", "details": {"owner": "", "others": {}}}}
	messages(of("shop", {}), {"fleet/us-1": owned("team-a"), "fleet/ap-1": owned("")}) == {"label owner is missing; it is team-a in fleet/us-1"}
}

test_no_owner_elsewhere if {
	messages(of("shop", owned("team-a")), {"fleet/us-1": owned(""), "fleet/ap-1": {}}) == set()
}

test_exempt if {
	every name in ["default", "kube-system", "kube-"] {
		messages(of(name, {}), {"fleet/us-1": owned("team-a")}) == set()
	}
	every name in ["default-2", "kube", "my-kube-system"] {
		messages(of(name, {}), {}) == {"label owner is missing"}
	}
}

test_another_label if {
	subject := object.union(of("shop", {"metadata": {"labels": {"team": "a", "owner": "x"}}}), {"parameters": {"label": "team"}})
	messages(subject, {"fleet/us-1": {"metadata": {"labels": {"team": "b", "owner": "x"}}}}) == {"owner is a here and b in fleet/us-1"}
}

test_groups if {
	grouped := object.union(of("shop", owned("team-a")), {"parameters": {"group": "company"}})
	messages(grouped, {"fleet/us-1": owned("team-a"), "fleet/ap-1": owned("team-b"), "fleet/lab": owned("team-c")}) == set()
	messages(grouped, {"fleet/us-1": owned("team-d")}) == {"owner is team-a here and team-d in fleet/us-1"}
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], {"": null}] {
		every object in [{"metadata": x}, {"metadata": {"labels": x}}] {
			messages(of("shop", object), {"fleet/us-1": object}) == {"label owner is missing"}
			messages(of("shop", owned("team-a")), {"fleet/us-1": object}) == set()
		}
	}
	every x in [null, 1, true, [], {}] {
		messages(of("shop", owned(x)), {"fleet/us-1": x}) == {"label owner is missing"}
	}
}
