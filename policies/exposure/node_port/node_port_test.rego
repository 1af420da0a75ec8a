package federator.exposure.node_port_test

import data.federator.exposure.node_port

parameters := {"ports": [30443], "loadBalancers": false}

service(spec, with_parameters) := {
	"ref": {"member": "fleet/eu-1", "kind": "Service", "namespace": "shop", "name": "web"},
	"object": {"spec": spec},
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": with_parameters,
}

messages(subject) := {v.msg | some v in node_port.violation with input as subject}

test_node_ports if {
	spec := {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}, {"port": 443, "nodePort": 30443}, {"port": 81}]}
	messages(service(spec, parameters)) == {"port 30080 is open on every node"}
}

test_a_port_of_two_protocols_is_one if {
	spec := {"type": "NodePort", "ports": [
		{"port": 53, "nodePort": 30053, "protocol": "UDP"},
		{"port": 53, "nodePort": 30053, "protocol": "TCP"},
	]}
	messages(service(spec, parameters)) == {"port 30053 is open on every node"}
}

test_other_types if {
	every type in ["ClusterIP", "LoadBalancer", "ExternalName", ""] {
		messages(service({"type": type, "ports": [{"port": 80, "nodePort": 30080}]}, parameters)) == set()
	}
}

test_load_balancers_on_request if {
	spec := {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]}
	messages(service(spec, object.union(parameters, {"loadBalancers": true}))) == {"port 30080 is open on every node"}
	without := {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]}
	messages(service(without, object.union(parameters, {"loadBalancers": true}))) == set()
}

test_odd_objects if {
	every x in [null, "", "x", true, [], {}, [null], {"": null}] {
		messages(service(x, parameters)) == set()
		messages(service({"type": x}, parameters)) == set()
		messages(service({"type": "NodePort", "ports": x}, parameters)) == set()
		messages(service({"type": "NodePort", "ports": [{"nodePort": x}, x]}, parameters)) == set()
	}
	messages(service({"type": "NodePort", "ports": [{"nodePort": 0}]}, parameters)) == set()
	messages({"object": {}, "parameters": parameters}) == set()
}
