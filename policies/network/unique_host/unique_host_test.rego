package federator.network.unique_host_test

import data.federator.network.unique_host

none := {"sharedHosts": [], "sharingLabels": []}

ingress(hosts) := {
	"ref": {"member": "fleet/eu-1", "kind": "Ingress.networking.k8s.io", "namespace": "shop", "name": "web"},
	"object": {"spec": {"rules": [{"host": host} | some host in hosts]}},
	"member": {"name": "fleet/eu-1", "labels": {"region": "eu", "pair": "a"}},
	"parameters": none,
}

route(hosts) := object.union(ingress([]), {
	"ref": {"kind": "HTTPRoute.gateway.networking.k8s.io"},
	"object": {"spec": {"hostnames": hosts}},
})

claim(kind, member, namespace) := {"ref": {"member": member, "kind": kind, "namespace": namespace, "name": "web"}, "value": true}

own := claim("Ingress.networking.k8s.io", "fleet/eu-1", "shop")

fleet(claims) := {
	"views": {"federator.network.unique_host": {"hosts": {"a.example": array.concat([own], claims)}}},
	"members": {
		"fleet/eu-1": {"labels": {"region": "eu", "pair": "a"}},
		"fleet/eu-2": {"labels": {"region": "eu"}},
		"fleet/us-1": {"labels": {"region": "us", "pair": "a"}},
		"fleet/ap-1": {"labels": {}},
	},
}

found(subject, claims) := violations if {
	violations := unique_host.violation with input as subject
		with data.fleet as fleet(claims)
}

messages(subject, claims) := {v.msg | some v in found(subject, claims)}

hosts(object) := {host |
	views := unique_host.view with input as object
	some host, _ in views.hosts
}

elsewhere(members) := [claim("Ingress.networking.k8s.io", member, "shop") | some member in members]

test_another_member if {
	other := claim("HTTPRoute.gateway.networking.k8s.io", "fleet/us-1", "shop")
	found(ingress(["a.example", "b.example"]), [other]) == {{
		"msg": "host a.example is also served from fleet/us-1",
		"details": {"host": "a.example", "others": [other.ref]},
	}}
	messages(route(["a.example"]), [other]) == {"host a.example is also served from fleet/us-1"}
}

test_many_members if {
	messages(ingress(["a.example"]), elsewhere(["fleet/us-1", "fleet/eu-2", "fleet/ap-1"])) == {"host a.example is also served from fleet/ap-1, fleet/eu-2 and 1 more"}
}

test_another_namespace if {
	messages(ingress(["a.example"]), [claim("Ingress.networking.k8s.io", "fleet/eu-1", "blog")]) == {"host a.example is also served from namespace blog"}
}

test_the_same_namespace_shares_paths if {
	same := object.union(own, {"ref": {"name": "api"}})
	messages(ingress(["a.example", "a.example"]), [same]) == set()
	messages(route(["a.example"]), []) == set()
}

test_shared_hosts if {
	every pattern in ["a.example", "*.example", "**"] {
		messages(object.union(ingress(["a.example"]), {"parameters": {"sharedHosts": [pattern]}}), elsewhere(["fleet/us-1"])) == set()
	}
	every pattern in ["b.example", "*", "example"] {
		messages(object.union(ingress(["a.example"]), {"parameters": {"sharedHosts": [pattern]}}), elsewhere(["fleet/us-1"])) != set()
	}
}

test_members_that_share if {
	pairs := object.union(ingress(["a.example"]), {"parameters": {"sharingLabels": ["pair", "zone"]}})
	messages(pairs, elsewhere(["fleet/us-1"])) == set()
	messages(pairs, elsewhere(["fleet/us-1", "fleet/eu-2"])) == {"host a.example is also served from fleet/eu-2"}

	# A label that neither has does not make them share.
	messages(object.union(pairs, {"member": {"labels": {"pair": null}}, "parameters": {"sharingLabels": ["zone"]}}), elsewhere(["fleet/ap-1"])) != set()
}

test_view if {
	hosts(ingress(["a.example", "", "b.example"])) == {"a.example", "b.example"}
	hosts(route(["a.example"])) == {"a.example"}
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], [[]], {"": null}] {
		every subject in [ingress([]), route([])] {
			messages(object.union(subject, {"object": {"spec": x}}), []) == set()
			messages(object.union(subject, {"object": {"spec": {"rules": x, "hostnames": x}}}), []) == set()
			hosts(object.union(subject, {"object": {"spec": {"rules": x, "hostnames": x}}})) == set()
		}
		messages(ingress([x, "a.example"]), elsewhere(["fleet/us-1"])) == {"host a.example is also served from fleet/us-1"}
		messages(route([x, "a.example"]), elsewhere(["fleet/us-1"])) == {"host a.example is also served from fleet/us-1"}
	}
}
