package federator.hygiene.required_labels_test

import data.federator.hygiene.required_labels

of(kind, labels, wanted) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": "web"},
	"object": {"metadata": {"labels": labels}},
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": {"labels": wanted},
}

found(subject) := violations if violations := required_labels.violation with input as subject

messages(subject) := {v.msg | some v in found(subject)}

team := {"key": "team"}

test_missing if {
	found(of("Service", {"app": "web"}, [team])) == {{"msg": "label team is missing", "details": {"label": "team"}}}
	messages(of("Service", {"team": ""}, [team])) == {"label team is missing"}
}

test_there if {
	messages(of("Service", {"team": "shop"}, [team])) == set()
	messages(of("Service", {"team": "shop"}, [])) == set()
}

test_every_label if {
	messages(of("Service", {}, [team, {"key": "app.kubernetes.io/name"}])) == {
		"label team is missing",
		"label app.kubernetes.io/name is missing",
	}
}

test_patterns if {
	tiers := {"key": "tier", "pattern": "web|db[0-9]"}
	every value in ["web", "db1"] {
		messages(of("Service", {"tier": value}, [tiers])) == set()
	}
	every value in ["webs", "adb1", "db", "db12"] {
		messages(of("Service", {"tier": value}, [tiers])) == {sprintf("label tier is %s, which does not match web|db[0-9]", [value])}
	}
	messages(of("Service", {}, [tiers])) == {"label tier is missing"}
}

test_remedy if {
	with_default := {"key": "team", "default": "unowned"}
	found(of("Deployment.apps", {}, [with_default])) == {{
		"msg": "label team is missing",
		"details": {"label": "team"},
		"remedy": {"action": "patch", "patch": {"metadata": {"labels": {"team": "unowned"}}}},
	}}
	messages(of("Deployment.apps", {"team": "shop"}, [with_default])) == set()
}

test_no_remedy_changes_a_value if {
	every v in found(of("Service", {"team": "x"}, [{"key": "team", "pattern": "a+", "default": "aa"}])) {
		not v.remedy
	}
}

test_no_remedy_that_the_pattern_refuses if {
	found(of("Service", {}, [{"key": "team", "pattern": "a+", "default": "b"}])) == {{"msg": "label team is missing", "details": {"label": "team"}}}
	some v in found(of("Service", {}, [{"key": "team", "pattern": "a+", "default": "aa"}]))
	v.remedy.patch.metadata.labels.team == "aa"
}

test_kinds if {
	services := {"key": "team", "kinds": ["Service"]}
	messages(of("Service", {}, [services])) == {"label team is missing"}
	messages(of("Deployment.apps", {}, [services])) == set()
	messages(of("Service", {}, [object.union(services, {"kinds": []})])) == set()
}

test_odd_objects if {
	patterned := {"key": "team", "pattern": "a+"}
	every x in [null, "", "x", 1, true, [], {}, [null], {"": null}] {
		messages(of("Service", x, [patterned])) == {"label team is missing"}
	}
	every x in [null, 1, true, [], {}] {
		messages(of("Service", {"team": x}, [patterned])) == {"label team is missing"}
	}
	messages({"ref": {"kind": "Service"}, "object": {}, "parameters": {"labels": [patterned]}}) == {"label team is missing"}
	messages({"ref": {"kind": "Service"}, "object": {"metadata": null}, "parameters": {"labels": [patterned]}}) == {"label team is missing"}
}
