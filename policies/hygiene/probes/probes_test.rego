package federator.hygiene.probes_test

import data.federator.hygiene.probes

parameters := {"probes": ["readinessProbe"], "allContainers": false}

of(kind, spec, with_parameters) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": "web"},
	"object": {"spec": {"template": {"spec": spec}}},
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": with_parameters,
}

messages(subject) := {v.msg | some v in probes.violation with input as subject}

server := {"name": "app", "ports": [{"containerPort": 80}]}

test_no_probe if {
	every kind in ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps"] {
		messages(of(kind, {"containers": [server]}, parameters)) == {"container app has no readinessProbe"}
	}
}

test_probes if {
	with_one := object.union(server, {"readinessProbe": {"httpGet": {"port": 80}}})
	messages(of("Deployment.apps", {"containers": [with_one]}, parameters)) == set()
	all_three := object.union(parameters, {"probes": ["readinessProbe", "livenessProbe", "startupProbe"]})
	messages(of("Deployment.apps", {"containers": [with_one]}, all_three)) == {
		"container app has no livenessProbe",
		"container app has no startupProbe",
	}
	with_all := object.union(with_one, {"livenessProbe": {}, "startupProbe": {"exec": {}}})
	messages(of("Deployment.apps", {"containers": [with_all]}, all_three)) == set()
}

test_containers_without_ports if {
	spec := {"containers": [{"name": "app"}, {"name": "b", "ports": []}]}
	messages(of("Deployment.apps", spec, parameters)) == set()
	messages(of("Deployment.apps", spec, object.union(parameters, {"allContainers": true}))) == {
		"container app has no readinessProbe",
		"container b has no readinessProbe",
	}
}

test_init_containers if {
	messages(of("Deployment.apps", {"initContainers": [server]}, parameters)) == set()
	sidecar := object.union(server, {"restartPolicy": "Always"})
	messages(of("Deployment.apps", {"initContainers": [sidecar]}, parameters)) == {"container app has no readinessProbe"}
}

test_other_kinds if {
	messages(of("Job.batch", {"containers": [server]}, parameters)) == set()
}

test_odd_objects if {
	all_evaluated := object.union(parameters, {"allContainers": true})
	every x in [null, "", "x", 1, true, [], {}, [[]], {"": null}] {
		messages(of("Deployment.apps", x, all_evaluated)) == set()
	}
	every x in [null, "", 1, [], {}] {
		messages(of("Deployment.apps", {"containers": x, "initContainers": x}, all_evaluated)) == set()
		messages(of("Deployment.apps", {"containers": [{"name": "app", "ports": x}]}, parameters)) == set()
	}
	every x in [null, "", 1, []] {
		messages(of("Deployment.apps", {"containers": [object.union(server, {"readinessProbe": x})]}, parameters)) == {"container app has no readinessProbe"}
	}
	messages(of("Deployment.apps", {"containers": [null]}, all_evaluated)) == {"container (unnamed) has no readinessProbe"}
	messages({"ref": {"kind": "Deployment.apps"}, "object": {}, "parameters": parameters}) == set()
}
