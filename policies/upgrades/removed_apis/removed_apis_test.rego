package federator.upgrades.removed_apis_test

import data.federator.upgrades.removed_apis

found(version, apis, parameters, policies) := violations if {
	violations := removed_apis.violation with input as {
		"member": {"name": "fleet/eu-1", "labels": {}},
		"parameters": object.union({"target": "", "ignored": []}, parameters),
	}
		with data.fleet as {
			"members": {"fleet/eu-1": {"labels": {}, "version": version, "apis": apis}},
			"objects": {"PodSecurityPolicy.policy": {"fleet/eu-1": policies}},
		}
}

messages(version, apis, target) := {v.msg | some v in found(version, apis, {"target": target}, {})}

crons := "serves batch/v1beta1, of which Kubernetes 1.25 removes CronJob: use batch/v1"

scalers := "serves autoscaling/v2beta2, of which Kubernetes 1.26 removes HorizontalPodAutoscaler: use autoscaling/v2"

test_the_next_version if {
	found("v1.24.3", ["batch/v1", "batch/v1beta1", "autoscaling/v2beta2", "v1"], {}, {}) == {{
		"msg": crons,
		"details": {"api": "batch/v1beta1", "removed": "1.25", "kinds": ["CronJob"], "use": "batch/v1"},
	}}
	messages("v1.23.3", ["batch/v1beta1"], "") == set()
}

test_a_target if {
	apis := ["batch/v1beta1", "autoscaling/v2beta2", "v1"]
	messages("v1.23.3", apis, "1.26") == {crons, scalers}
	messages("v1.23.3", apis, "1.25") == {crons}
	messages("v1.23.3", apis, "1.24") == set()
	messages("v1.23.3", apis, "1.20") == set()
}

test_what_is_not_served if {
	messages("v1.24.3", ["batch/v1", "v1", "apps/v1"], "1.36") == set()
	messages("v1.24.3", [], "1.36") == set()
}

# Versions of APIs are used again for other kinds: those that are gone already, or are
# not there yet, say nothing.
test_versions_that_are_used_again if {
	messages("v1.21.0", ["networking.k8s.io/v1beta1"], "1.36") == {"serves networking.k8s.io/v1beta1, of which Kubernetes 1.22 removes Ingress, IngressClass: use networking.k8s.io/v1"}
	messages("v1.33.0", ["networking.k8s.io/v1beta1", "storage.k8s.io/v1beta1", "coordination.k8s.io/v1beta1"], "1.36") == set()
	messages("v1.22.0", ["admissionregistration.k8s.io/v1beta1"], "1.36") == set()
	messages("v1.33.0", ["admissionregistration.k8s.io/v1beta1"], "1.36") == {concat("", [
		"serves admissionregistration.k8s.io/v1beta1, of which Kubernetes 1.34 removes ",
		"ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding: use admissionregistration.k8s.io/v1",
	])}
}

test_ignored if {
	apis := ["batch/v1beta1", "autoscaling/v2beta2"]
	{v.msg | some v in found("v1.24.3", apis, {"target": "1.26", "ignored": ["batch/v1beta1"]}, {})} == {scalers}
}

test_pod_security_policies if {
	served := "serves policy/v1beta1, of which Kubernetes 1.25 removes PodSecurityPolicy: there is no other"
	budgets := "serves policy/v1beta1, of which Kubernetes 1.25 removes PodDisruptionBudget: use policy/v1"
	policies := {"": {"restricted": {"metadata": {}}, "privileged": {"metadata": {}}}}
	{v.msg | some v in found("v1.24.3", ["policy/v1beta1"], {}, policies)} == {served, budgets, "has 2 PodSecurityPolicies, which Kubernetes 1.25 removes: use Pod Security admission"}
	{v.msg | some v in found("v1.24.3", ["policy/v1beta1"], {}, {})} == {served, budgets}
	found("v1.25.3", ["policy/v1"], {"target": "1.36"}, policies) == set()
}

test_versions_that_are_not_known if {
	every version in ["", "unknown", "v2.1.0", "v1"] {
		messages(version, ["batch/v1beta1"], "1.36") == set()
	}
}

test_the_table if {
	every row in removed_apis.table {
		row.since < row.removed
		row.removed >= 16
		row.removed <= 36
		count(row.kinds) > 0
		row.kinds == sort(row.kinds)
		regex.match(`^([a-z.0-9]+)/v[0-9]+(alpha|beta)[0-9]+$`, row.api)
		row.use != row.api
	}
	count({[row.api, kind] | some row in removed_apis.table; some kind in row.kinds}) == sum([count(row.kinds) | some row in removed_apis.table])
}
