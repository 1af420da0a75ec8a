package federator.rbac.wildcards_test

import data.federator.rbac.wildcards

parameters := {"fields": ["apiGroups", "resources", "verbs", "nonResourceURLs"], "builtin": false}

role(object) := of("deployer", object, parameters)

of(name, object, with_parameters) := {
	"ref": {"member": "fleet/eu-1", "kind": "ClusterRole.rbac.authorization.k8s.io", "namespace": "", "name": name},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": with_parameters,
}

messages(subject) := {v.msg | some v in wildcards.violation with input as subject}

test_wildcards if {
	messages(role({"rules": [
		{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
		{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
	]})) == {"rules[1].apiGroups has *", "rules[1].resources has *", "rules[1].verbs has *"}
	messages(role({"rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}]})) == {"rules[0].nonResourceURLs has *"}
}

test_every_subresource if {
	messages(role({"rules": [{"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["update"]}]})) == {"rules[0].resources has */scale"}
	messages(role({"rules": [{"apiGroups": ["apps"], "resources": ["deployments/*"], "verbs": ["update"]}]})) == set()
}

test_named if {
	messages(role({"rules": [
		{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
		{"nonResourceURLs": ["/healthz/*"], "verbs": ["get"]},
	]})) == set()
}

test_fields if {
	verbs := object.union(parameters, {"fields": ["verbs"]})
	messages(of("deployer", {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}, verbs)) == {"rules[0].verbs has *"}
}

test_roles_of_kubernetes if {
	object := {
		"metadata": {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
		"rules": [{"apiGroups": ["*"], "resources": ["pods"], "verbs": ["get"]}],
	}
	every name in ["cluster-admin", "system:controller:namespace-controller"] {
		messages(of(name, object, parameters)) == set()
		count(messages(of(name, object, object_with_builtin))) == 1
		count(messages(of(name, json.remove(object, ["metadata"]), parameters))) == 1
	}
	count(messages(of("mine", object, parameters))) == 1
}

object_with_builtin := object.union(parameters, {"builtin": true})

test_put_together if {
	messages(role({"aggregationRule": {"clusterRoleSelectors": []}, "rules": [{"verbs": ["*"]}]})) == set()
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], [[]], {"": null}] {
		messages(role({"rules": x})) == set()
		messages(role({"rules": [x]})) == set()
		messages(role({"rules": [{"verbs": x}]})) == set()
		messages(role({"rules": [{"verbs": [x]}]})) == set()
		count(messages(role({"metadata": x, "rules": [{"verbs": ["*"]}]}))) == 1
	}
	messages(role({})) == set()
}
