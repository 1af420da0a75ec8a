package federator.workloads.chart_skew_test

import data.federator.workloads.chart_skew

entry(member, version) := {
	"ref": {"member": member, "kind": "Deployment.apps", "namespace": "shop", "name": "web"},
	"value": version,
}

subject(entries, group) := {"key": "shop/web of chart nginx", "entries": entries, "parameters": {"group": group}}

fleet := {"members": {
	"fleet/eu-1": {"labels": {"stage": "prod"}},
	"fleet/us-1": {"labels": {"stage": "prod"}},
	"fleet/lab": {"labels": {"stage": "test"}},
	"fleet/new": {"labels": {}},
}}

found(entries, group) := violations if {
	violations := chart_skew.violation with input as subject(entries, group)
		with data.fleet as fleet
}

messages(entries, group) := {v.msg | some v in found(entries, group)}

keys(namespace, labels) := {key: values |
	views := chart_skew.view with input as {
		"ref": {"member": "fleet/eu-1", "kind": "Deployment.apps", "namespace": namespace, "name": "web"},
		"object": {"metadata": {"labels": labels}},
	}
	some key, values in views.releases
}

release(instance, chart) := {"app.kubernetes.io/instance": instance, "helm.sh/chart": chart}

test_two_versions if {
	found([entry("fleet/eu-1", "1.2.0"), entry("fleet/us-1", "1.3.0")], "") == {{
		"msg": "2 versions: 1.2.0 in fleet/eu-1; 1.3.0 in fleet/us-1",
		"details": {"group": "", "versions": {"1.2.0": {"fleet/eu-1"}, "1.3.0": {"fleet/us-1"}}},
	}}
}

test_two_versions_in_one_member if {
	messages([entry("fleet/eu-1", "1.2.0"), entry("fleet/eu-1", "1.3.0")], "") == {"2 versions: 1.2.0 in fleet/eu-1; 1.3.0 in fleet/eu-1"}
}

test_one_version if {
	messages([entry("fleet/eu-1", "1.2.0"), entry("fleet/eu-1", "1.2.0"), entry("fleet/us-1", "1.2.0")], "") == set()
	messages([entry("fleet/eu-1", "1.2.0")], "") == set()
	messages([], "") == set()
}

test_many_members if {
	behind := [entry(member, "1.2.0") | some member in ["fleet/us-1", "fleet/lab", "fleet/new"]]
	messages(array.concat(behind, [entry("fleet/eu-1", "1.3.0")]), "") == {"2 versions: 1.2.0 in fleet/lab, fleet/new and 1 more; 1.3.0 in fleet/eu-1"}
}

test_groups if {
	apart := [entry("fleet/eu-1", "1.2.0"), entry("fleet/lab", "1.3.0"), entry("fleet/new", "1.4.0")]
	count(messages(apart, "")) == 1
	messages(apart, "stage") == set()
	messages(array.concat(apart, [entry("fleet/us-1", "1.3.0")]), "stage") == {"2 versions where stage is prod: 1.2.0 in fleet/eu-1; 1.3.0 in fleet/us-1"}
	messages(array.concat(apart, [entry("fleet/new", "1.5.0")]), "stage") == {"2 versions: 1.4.0 in fleet/new; 1.5.0 in fleet/new"}
}

test_releases if {
	keys("shop", release("web", "nginx-1.2.3")) == {"shop/web of chart nginx": {"1.2.3"}}
	keys("certs", release("cm", "cert-manager-v1.14.2-beta.1_build5")) == {"certs/cm of chart cert-manager": {"v1.14.2-beta.1_build5"}}
	keys("shop", release("web", "web-2-0.1.0")) == {"shop/web of chart web-2": {"0.1.0"}}
}

test_no_releases if {
	every chart in ["", "nginx", "nginx-", "-1.2.3", "nginx-latest", "1.2.3"] {
		keys("shop", release("web", chart)) == {}
	}
	keys("shop", {"helm.sh/chart": "nginx-1.2.3"}) == {}
	keys("shop", {"app.kubernetes.io/instance": "web"}) == {}
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], {"": null}] {
		keys("shop", x) == {}
	}
	every x in [null, 1, true, [], {}] {
		keys("shop", release(x, "nginx-1.2.3")) == {}
		keys("shop", release("web", x)) == {}
	}
}
