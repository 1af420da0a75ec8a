package federator.security.host_namespaces_test

import data.federator.security.host_namespaces

parameters := {"namespaces": [], "ports": []}

of(kind, object, with_parameters) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": "web"},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": with_parameters,
}

pod(spec) := of("Pod", {"spec": spec}, parameters)

messages(subject) := {v.msg | some v in host_namespaces.violation with input as subject}

ports(list) := {"containers": [{"name": "app", "ports": list}]}

test_namespaces if {
	every field in ["hostNetwork", "hostPID", "hostIPC"] {
		messages(pod({field: true})) == {sprintf("the Pod uses %s", [field])}
		messages(pod({field: false})) == set()
		messages(of("Pod", {"spec": {field: true}}, object.union(parameters, {"namespaces": [field]}))) == set()
	}
	count(messages(pod({"hostNetwork": true, "hostPID": true, "hostIPC": true}))) == 3
}

test_ports if {
	messages(pod(ports([{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]))) == {"container app uses host port 8080"}
	messages(pod(ports([{"containerPort": 80, "hostPort": 0}]))) == set()
}

test_allowed_ports if {
	with_range := object.union(parameters, {"ports": [{"min": 9100, "max": 9199}, {"min": 53, "max": 53}]})
	every port in [9100, 9150, 9199, 53] {
		messages(of("Pod", {"spec": ports([{"hostPort": port}])}, with_range)) == set()
	}
	every port in [9099, 9200, 52, 54] {
		count(messages(of("Pod", {"spec": ports([{"hostPort": port}])}, with_range))) == 1
	}
}

test_ports_in_the_nodes_network_are_not_told_again if {
	spec := object.union(ports([{"containerPort": 80, "hostPort": 80}]), {"hostNetwork": true})
	messages(pod(spec)) == {"the Pod uses hostNetwork"}
	messages(of("Pod", {"spec": spec}, object.union(parameters, {"namespaces": ["hostNetwork"]}))) == set()
}

test_templates if {
	every kind in ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch"] {
		count(messages(of(kind, {"spec": {"template": {"spec": {"hostPID": true}}}}, parameters))) == 1
	}
	cron := {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"hostPID": true}}}}}}
	count(messages(of("CronJob.batch", cron, parameters))) == 1
}

test_made_of_a_template if {
	owner := {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": true}
	messages(of("Pod", {"metadata": {"ownerReferences": [owner]}, "spec": {"hostPID": true}}, parameters)) == set()
}

test_odd_objects if {
	odd := [null, "", "x", 1, [], {}, [null], [[]], {"": null}]
	every x in odd {
		messages(pod(x)) == set()
		every field in ["hostNetwork", "hostPID", "hostIPC", "containers"] {
			messages(pod({field: x})) == set()
		}
		messages(pod(ports(x))) == set()
	}
	messages(pod(ports([{"hostPort": null}, {"hostPort": "http"}, {}, null]))) == set()
}
