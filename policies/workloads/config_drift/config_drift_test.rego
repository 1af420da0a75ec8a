package federator.workloads.config_drift_test

import data.federator.workloads.config_drift

label := {"metadata": {"labels": {"federator.dev/replicate": "true"}}}

of(kind, fields) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": namespace(kind), "name": "web"},
	"object": object.union(label, fields),
	"member": {"name": "fleet/eu-1", "labels": {"stage": "prod"}},
	"parameters": {"label": "federator.dev/replicate", "value": "true", "everywhere": false, "group": ""},
}

namespace("ClusterRole.rbac.authorization.k8s.io") := ""

namespace(kind) := "shop" if kind != "ClusterRole.rbac.authorization.k8s.io"

found(subject, elsewhere) := violations if {
	violations := config_drift.violation with input as subject
		with data.fleet as {
			"by_name": {subject.ref.kind: {subject.ref.namespace: {"web": object.union({"fleet/eu-1": subject.object}, elsewhere)}}},
			"names": ["fleet/eu-1", "fleet/lab", "fleet/us-1"],
			"members": {
				"fleet/eu-1": {"labels": {"stage": "prod"}},
				"fleet/us-1": {"labels": {"stage": "prod"}},
				"fleet/lab": {"labels": {}},
			},
		}
}

messages(subject, elsewhere) := {v.msg | some v in found(subject, elsewhere)}

compare(kind, here, there) := messages(of(kind, here), {"fleet/us-1": there})

roles := {"Role.rbac.authorization.k8s.io", "ClusterRole.rbac.authorization.k8s.io"}

rule(verbs) := {"apiGroups": [""], "resources": ["pods", "services"], "verbs": verbs}

test_rules_of_roles if {
	every kind in roles {
		found(of(kind, {"rules": [rule(["get"])]}), {"fleet/us-1": {"rules": [rule(["get", "list"])]}}) == {{
			"msg": "rules differ from fleet/us-1",
			"details": {"others": {"fleet/us-1"}},
		}}
		compare(kind, {"rules": [rule(["get"])]}, {"rules": [rule(["get"]), rule(["watch"])]}) == {"rules differ from fleet/us-1"}
		compare(kind, {"rules": []}, {"rules": [rule(["get"])]}) == {"rules differ from fleet/us-1"}
	}
}

test_order_does_not_count if {
	turned := {"resources": ["services", "pods"], "verbs": ["list", "get"], "apiGroups": [""]}
	every kind in roles {
		compare(kind, {"rules": [rule(["get", "list"]), rule(["watch"])]}, {"rules": [rule(["watch"]), turned]}) == set()
	}
}

test_keys_of_config_maps if {
	compare("ConfigMap", {"data": {"a": "", "b": ""}}, {"data": {"b": "", "a": "x"}}) == set()
	compare("ConfigMap", {"data": {"a": ""}}, {"data": {"a": "", "b": ""}}) == {"keys differ from fleet/us-1"}
	compare("ConfigMap", {"data": {"a": ""}}, {"data": null}) == {"keys differ from fleet/us-1"}
	compare("ConfigMap", {"data": {"a": ""}}, {"binaryData": {"a": ""}}) == set()
}

test_spec_of_network_policies if {
	here := {"spec": {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 80}, {"port": 443}]}]}}
	turned := {"spec": {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 443}, {"port": 80}]}]}}
	compare("NetworkPolicy.networking.k8s.io", here, turned) == set()
	compare("NetworkPolicy.networking.k8s.io", here, {"spec": {"podSelector": {}, "ingress": []}}) == {"rules differ from fleet/us-1"}
	compare("NetworkPolicy.networking.k8s.io", here, {"spec": {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": here.spec.ingress}}) == {"rules differ from fleet/us-1"}
}

test_metadata_does_not_count if {
	compare("ConfigMap", {"data": {"a": ""}, "metadata": {"uid": "1"}}, {"data": {"a": ""}, "metadata": {"uid": "2", "labels": {"app": "web"}}}) == set()
}

test_what_is_not_replicated if {
	every labels in [{}, null, {"federator.dev/replicate": "false"}, {"federator.dev/replicate": null}, {"app": "true"}] {
		subject := {"ref": {"kind": "ConfigMap", "member": "fleet/eu-1", "namespace": "shop", "name": "web"}, "object": {"metadata": {"labels": labels}, "data": {"a": ""}}, "parameters": of("ConfigMap", {}).parameters}
		messages(subject, {"fleet/us-1": {"data": {}}}) == set()
	}
}

test_many_members if {
	subject := of("ConfigMap", {"data": {"a": ""}})
	elsewhere := {"fleet/us-1": {"data": {}}, "fleet/lab": {"data": {"b": ""}}}
	messages(subject, elsewhere) == {"keys differ from fleet/lab and fleet/us-1"}
	messages(object.union(subject, {"parameters": {"group": "stage"}}), elsewhere) == {"keys differ from fleet/us-1"}
}

test_missing if {
	subject := object.union(of("ConfigMap", {"data": {"a": ""}}), {"parameters": {"everywhere": true}})
	messages(subject, {"fleet/us-1": {"data": {"a": ""}}}) == {"is missing in fleet/lab"}
	messages(subject, {"fleet/us-1": {"data": {"a": ""}}, "fleet/lab": {"data": {"a": ""}}}) == set()
	messages(object.union(subject, {"parameters": {"group": "stage"}}), {"fleet/us-1": {"data": {"a": ""}}}) == set()
	messages(of("ConfigMap", {"data": {"a": ""}}), {}) == set()
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], [[]], {"": null}] {
		every kind in roles {
			compare(kind, {"rules": [rule(["get"])]}, {"rules": x}) == {"rules differ from fleet/us-1"}
			compare(kind, {"rules": [rule(["get"])]}, {"rules": [rule(["get"]), {"verbs": x}]}) == {"rules differ from fleet/us-1"}
			compare(kind, {"rules": x}, {"rules": x}) == set()
		}
		compare("ConfigMap", {"data": x}, {"data": x}) == set()
		compare("NetworkPolicy.networking.k8s.io", {"spec": x}, {"spec": x}) == set()
		compare("NetworkPolicy.networking.k8s.io", {"spec": {"ingress": [x]}}, {"spec": {"ingress": [x, {"ports": x}]}}) - {"rules differ from fleet/us-1"} == set()
	}
}
