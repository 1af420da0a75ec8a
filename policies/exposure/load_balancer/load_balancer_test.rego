package federator.exposure.load_balancer_test

import data.federator.exposure.load_balancer

parameters := {
	"internalAnnotations": {
		"networking.gke.io/load-balancer-type": "Internal",
		"service.beta.kubernetes.io/azure-load-balancer-internal": "true",
	},
	"internalClasses": ["tailscale"],
	"sourceRanges": ["10.0.0.0/8", "192.0.2.0/24", "fc00::/7"],
}

service(annotations, spec) := {
	"ref": {"member": "fleet/eu-1", "kind": "Service", "namespace": "shop", "name": "web"},
	"object": {"metadata": {"annotations": annotations}, "spec": object.union({"type": "LoadBalancer"}, spec)},
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": parameters,
}

messages(subject) := {v.msg | some v in load_balancer.violation with input as subject}

every_address := {"the load balancer is not internal and accepts all addresses"}

takes(range) := {sprintf("the load balancer is not internal and accepts %s", [range])}

legacy := "service.beta.kubernetes.io/load-balancer-source-ranges"

test_exposed if {
	messages(service({}, {})) == every_address
	messages(service({"networking.gke.io/load-balancer-type": "External"}, {})) == every_address
	messages(service({}, {"loadBalancerClass": "metallb"})) == every_address
}

test_other_types if {
	every type in ["ClusterIP", "NodePort", "ExternalName", ""] {
		messages(service({}, {"type": type})) == set()
	}
}

test_internal if {
	messages(service({"networking.gke.io/load-balancer-type": "internal"}, {})) == set()
	messages(service({"service.beta.kubernetes.io/azure-load-balancer-internal": "true"}, {})) == set()
	messages(service({}, {"loadBalancerClass": "tailscale"})) == set()
	messages(service({"networking.gke.io/load-balancer-type": "Internal"}, {"loadBalancerSourceRanges": ["0.0.0.0/0"]})) == set()
}

test_ranges if {
	messages(service({}, {"loadBalancerSourceRanges": ["10.1.0.0/16", " 192.0.2.7/32 ", "fd00::/8"]})) == set()
	messages(service({}, {"loadBalancerSourceRanges": ["10.1.0.0/16", "198.51.100.0/24"]})) == takes("198.51.100.0/24")
	messages(service({}, {"loadBalancerSourceRanges": ["0.0.0.0/0", "::/0"]})) == takes("0.0.0.0/0") | takes("::/0")
	messages(service({}, {"loadBalancerSourceRanges": ["10.0.0.0/7"]})) == takes("10.0.0.0/7")
}

test_ranges_of_the_annotation if {
	messages(service({legacy: "10.0.0.0/16, 192.0.2.0/25"}, {})) == set()
	messages(service({legacy: "10.0.0.0/16,0.0.0.0/0"}, {})) == takes("0.0.0.0/0")
	messages(service({legacy: ""}, {})) == every_address
	messages(service({legacy: "10.0.0.0/16"}, {"loadBalancerSourceRanges": ["0.0.0.0/0"]})) == takes("0.0.0.0/0")
}

test_ranges_that_are_none if {
	every text in ["everyone", "10.0.0.0", "10.0.0.0/33", "/", "10.0.0.0/8/8"] {
		messages(service({}, {"loadBalancerSourceRanges": [text]})) == takes(text)
	}
}

test_no_ranges_are_allowed if {
	strict := object.union(parameters, {"sourceRanges": []})
	subject := object.union(service({}, {"loadBalancerSourceRanges": ["10.0.0.0/8"]}), {"parameters": strict})
	messages(json.patch(subject, [{"op": "replace", "path": "/parameters/sourceRanges", "value": []}])) == takes("10.0.0.0/8")
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], {"": null}] {
		messages(service(x, {})) == every_address
		messages(service({"networking.gke.io/load-balancer-type": x, legacy: null}, {})) == every_address
		messages({"object": {"spec": x}, "parameters": parameters}) == set()
	}
	every x in [null, "", 1, [], {}, [null], [1]] {
		messages(service({}, {"loadBalancerSourceRanges": x, "loadBalancerClass": x})) == every_address
		messages(service({legacy: x}, {})) == every_address
	}
	messages({"object": {"spec": {"type": "LoadBalancer"}}, "parameters": parameters}) == every_address
	messages({"object": {}, "parameters": parameters}) == set()
}
