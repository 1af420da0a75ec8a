package federator.availability.no_disruption_budget_test

import data.federator.availability.no_disruption_budget

web := {"spec": {
	"replicas": 3,
	"selector": {"matchLabels": {"app": "web"}},
	"template": {"metadata": {"labels": {"app": "web", "tier": "front"}}},
}}

of(kind, object) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": "web"},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": {"elsewhere": true, "maxUnavailable": 1},
}

budget(selector) := {"spec": {"selector": selector}}

allowing(limit) := {"spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": limit}}

# found gives the findings where a member has some budgets by name, and other members
# have one of the app's name.
found(subject, here, elsewhere) := violations if {
	own := {member: named | some name, named in here; name == "web"; member := "fleet/eu-1"}
	violations := no_disruption_budget.violation with input as subject
		with data.fleet as {
			"objects": {"PodDisruptionBudget.policy": {"fleet/eu-1": {"shop": here}}},
			"by_name": {"PodDisruptionBudget.policy": {"shop": {"web": object.union(own, elsewhere)}}},
		}
}

messages(object, here) := {v.msg | some v in found(of("Deployment.apps", object), here, {})}

unprotected := {"no PodDisruptionBudget selects its 3 replicas"}

remedy(elsewhere) := v.remedy if some v in found(of("Deployment.apps", web), {}, elsewhere)

test_no_budget if {
	every kind in ["Deployment.apps", "StatefulSet.apps"] {
		found(of(kind, web), {}, {}) == {{
			"msg": "no PodDisruptionBudget selects its 3 replicas",
			"details": {"elsewhere": set()},
			"remedy": {
				"action": "apply",
				"target": {"member": "fleet/eu-1", "kind": "PodDisruptionBudget.policy", "namespace": "shop", "name": "web"},
				"object": {
					"apiVersion": "policy/v1",
					"kind": "PodDisruptionBudget",
					"metadata": {"namespace": "shop", "name": "web"},
					"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
				},
			},
		}}
	}
	count(no_disruption_budget.violation) == 1 with input as of("Deployment.apps", web)
		with data.fleet as {}
}

test_a_budget if {
	messages(web, {"any": budget({"matchLabels": {"app": "web"}})}) == set()
	messages(web, {"any": budget({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}]})}) == set()
	messages(web, {"any": budget({})}) == set()
}

test_a_budget_of_something_else if {
	messages(web, {"any": budget({"matchLabels": {"app": "api"}})}) == unprotected
	messages(web, {"any": budget({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]})}) == unprotected
	messages(web, {"any": budget(null)}) == unprotected
}

test_one_replica if {
	every replicas in [0, 1, null, "3", [], {}] {
		messages({"spec": {"replicas": replicas, "selector": web.spec.selector, "template": web.spec.template}}, {}) == set()
	}
	messages({"spec": {}}, {}) == set()
}

test_other_members if {
	elsewhere := {"fleet/us-1": allowing(2), "fleet/ap-1": allowing(2), "fleet/lab": budget({"matchLabels": {"app": "api"}})}
	some v in found(of("Deployment.apps", web), {}, elsewhere)
	v.msg == "no PodDisruptionBudget selects its 3 replicas, unlike in fleet/ap-1 and fleet/us-1"
	v.details.elsewhere == {"fleet/us-1", "fleet/ap-1"}
	v.remedy.object.spec.maxUnavailable == 2
}

test_other_members_are_not_asked if {
	subject := object.union(of("Deployment.apps", web), {"parameters": {"elsewhere": false, "maxUnavailable": 2}})
	{v.msg | some v in found(subject, {}, {"fleet/us-1": allowing(1)})} == unprotected
	{v.remedy.object.spec.maxUnavailable | some v in found(subject, {}, {"fleet/us-1": allowing(1)})} == {2}
}

test_limits_of_the_remedy if {
	remedy({"fleet/us-1": allowing("25%")}).object.spec.maxUnavailable == "25%"
	every limit in [0, -1, "0%", "100%", "many", null, true, [], {}] {
		remedy({"fleet/us-1": allowing(limit)}).object.spec.maxUnavailable == 1
	}

	# Where others disagree, or say minAvailable, nothing is taken from them.
	remedy({"fleet/us-1": allowing(2), "fleet/ap-1": allowing(3)}).object.spec.maxUnavailable == 1
	remedy({"fleet/us-1": budget({"matchLabels": {"app": "web"}})}).object.spec.maxUnavailable == 1
}

test_no_remedy_where_the_name_is_taken if {
	violations := found(of("Deployment.apps", web), {"web": budget({"matchLabels": {"app": "api"}})}, {"fleet/us-1": allowing(1)})
	{v.msg | some v in violations} == {"no PodDisruptionBudget selects its 3 replicas, unlike in fleet/us-1"}
	every v in violations {
		not v.remedy
	}
}

test_no_remedy_that_selects_something_else if {
	every x in [null, {}, {"matchLabels": {"app": "api"}}, {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, [], "app"] {
		violations := found(of("Deployment.apps", {"spec": {"replicas": 3, "selector": x, "template": web.spec.template}}), {}, {})
		violations == {{"msg": "no PodDisruptionBudget selects its 3 replicas", "details": {"elsewhere": set()}}}
	}
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], {"": null}] {
		messages({"spec": x}, {}) == set()
		messages({"spec": {"replicas": 3, "selector": x, "template": x}}, {}) == unprotected
		messages({"spec": {"replicas": 3, "template": {"metadata": x}}}, {}) == unprotected
		messages({"spec": {"replicas": 3, "template": {"metadata": {"labels": x}}}}, {}) == unprotected
		messages(web, {"any": x, "other": {"spec": x}, "web": {"spec": null}}) == unprotected
		{v.msg | some v in found(of("Deployment.apps", web), {}, {"fleet/us-1": x, "fleet/us-2": {"spec": x}})} == unprotected
	}
}
