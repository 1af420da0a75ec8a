package federator.workloads.gatekeeper_drift_test

import data.federator.workloads.gatekeeper_drift

template(version, spec) := {"metadata": {"annotations": {"metadata.gatekeeper.sh/version": version}}, "spec": spec}

value_of(object) := v if {
	contributed := gatekeeper_drift.view.installed.required with input as {"ref": {"kind": "ConstraintTemplate.templates.gatekeeper.sh", "name": "required"}, "object": object}
	some v in contributed
}

entry(member, object) := {"ref": {"member": member, "name": "required"}, "value": value_of(object)}

fleet := {
	"members": {
		"fleet/eu-1": {"labels": {"stage": "prod"}},
		"fleet/us-1": {"labels": {"stage": "prod"}},
		"fleet/lab": {"labels": {"stage": "test"}},
	},
	"views": {"federator.workloads.gatekeeper_drift": {"members": {"gatekeeper": [
		{"ref": {"member": "fleet/eu-1"}, "value": true},
		{"ref": {"member": "fleet/us-1"}, "value": true},
	]}}},
}

messages(entries, parameters) := {v.msg |
	some v in gatekeeper_drift.violation with input as {"key": "required", "entries": entries, "parameters": object.union({"everywhere": false, "group": ""}, parameters)}
		with data.fleet as fleet
}

test_equal_templates if {
	messages([entry("fleet/eu-1", template("1.0.0", {"a": 1})), entry("fleet/us-1", template("1.0.0", {"a": 1}))], {}) == set()
}

test_versions_differ if {
	found := messages([entry("fleet/eu-1", template("1.0.0", {"a": 1})), entry("fleet/us-1", template("1.1.0", {"a": 2}))], {})
	count(found) == 1
	every msg in found {
		regex.match(`^2 variants: 1\.0\.0 \([0-9a-f]{8}\) in fleet/eu-1; 1\.1\.0 \([0-9a-f]{8}\) in fleet/us-1$`, msg)
	}
}

test_spec_differs_under_one_version if {
	count(messages([entry("fleet/eu-1", template("1.0.0", {"a": 1})), entry("fleet/us-1", template("1.0.0", {"a": 2}))], {})) == 1
}

test_without_a_version if {
	value_of({"metadata": {"annotations": null}, "spec": {}}).version == "unversioned"
	value_of({"metadata": {}}).version == "unversioned"
}

test_groups if {
	entries := [entry("fleet/eu-1", template("1.0.0", {"a": 1})), entry("fleet/lab", template("1.1.0", {"a": 2}))]
	messages(entries, {"group": "stage"}) == set()
	count(messages(entries, {})) == 1
}

test_missing if {
	one := [entry("fleet/eu-1", template("1.0.0", {"a": 1}))]
	messages(one, {}) == set()
	messages(one, {"everywhere": true}) == {"is missing in fleet/us-1"}
	messages(one, {"everywhere": true, "group": "stage"}) == {"is missing where stage is prod in fleet/us-1"}
}

test_constraints_by_kind_and_name if {
	constraint := {"ref": {"kind": "K8sRequiredLabels.constraints.gatekeeper.sh", "name": "owner"}, "object": {"spec": {"enforcementAction": "warn"}}}
	{v.version | some v in gatekeeper_drift.view.installed["K8sRequiredLabels/owner"] with input as constraint} == {"warn"}
	{v.version | some v in gatekeeper_drift.view.installed["K8sRequiredLabels/owner"] with input as object.union(constraint, {"object": {"spec": {"enforcementAction": "deny"}}})} == {"deny"}
	not gatekeeper_drift.view.installed.owner with input as constraint
}

test_a_constraint_without_a_spec_denies if {
	{v.version | some v in gatekeeper_drift.view.installed["K8sRequiredLabels/owner"] with input as {"ref": {"kind": "K8sRequiredLabels.constraints.gatekeeper.sh", "name": "owner"}, "object": {}}} == {"deny"}
}
