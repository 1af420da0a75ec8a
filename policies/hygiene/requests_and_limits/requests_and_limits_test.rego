package federator.hygiene.requests_and_limits_test

import data.federator.hygiene.requests_and_limits

parameters := {"requests": ["cpu", "memory"], "limits": ["memory"], "initContainers": false}

of(kind, object, with_parameters) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": "web"},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": with_parameters,
}

pod(spec) := of("Pod", {"spec": spec}, parameters)

messages(subject) := {v.msg | some v in requests_and_limits.violation with input as subject}

asking(resources) := pod({"containers": [{"name": "app", "resources": resources}]})

nothing := {
	"container app has no request for cpu",
	"container app has no request for memory",
	"container app has no limit for memory",
}

test_nothing_said if {
	messages(pod({"containers": [{"name": "app"}]})) == nothing
	messages(asking({})) == nothing
	messages(asking({"requests": {}, "limits": {}})) == nothing
}

test_all_said if {
	messages(asking({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}})) == set()
}

test_some_said if {
	messages(asking({"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}})) == set()
	messages(asking({"requests": {"cpu": "100m", "memory": "1Gi"}})) == {"container app has no limit for memory"}
	messages(asking({"limits": {"cpu": "1"}})) == {"container app has no request for memory", "container app has no limit for memory"}
}

test_said_by_the_pod if {
	spec := {
		"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
		"containers": [{"name": "a"}, {"name": "b"}],
	}
	messages(pod(spec)) == set()
}

starting(init) := {
	"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}],
	"initContainers": [init],
}

test_init_containers if {
	messages(pod(starting({"name": "app"}))) == set()
	messages(pod(starting({"name": "app", "restartPolicy": "Always"}))) == nothing
	messages(of("Pod", {"spec": starting({"name": "app"})}, object.union(parameters, {"initContainers": true}))) == nothing
}

test_debugging_is_left_alone if {
	messages(pod({"ephemeralContainers": [{"name": "shell"}]})) == set()
}

test_other_resources if {
	with_disk := object.union(parameters, {"requests": ["ephemeral-storage"], "limits": []})
	messages(of("Pod", {"spec": {"containers": [{"name": "app"}]}}, with_disk)) == {"container app has no request for ephemeral-storage"}
	none := object.union(parameters, {"requests": [], "limits": []})
	messages(of("Pod", {"spec": {"containers": [{"name": "app"}]}}, none)) == set()
}

test_templates if {
	spec := {"containers": [{"name": "app"}]}
	every kind in ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch"] {
		messages(of(kind, {"spec": {"template": {"spec": spec}}}, parameters)) == nothing
	}
	messages(of("CronJob.batch", {"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}, parameters)) == nothing
}

test_made_of_a_template if {
	owner := {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": true}
	messages(of("Pod", {"metadata": {"ownerReferences": [owner]}, "spec": {"containers": [{"name": "app"}]}}, parameters)) == set()
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], [[]], {"": null}] {
		messages(pod(x)) == set()
		messages(asking(x)) == nothing
		messages(asking({"requests": x, "limits": x})) == nothing
		messages(pod({"resources": x, "containers": [{"name": "app"}]})) == nothing
	}
	every x in [null, "", 1, [], {}] {
		messages(pod({"containers": x, "initContainers": x})) == set()
	}
	messages(asking({"requests": {"cpu": null, "memory": null}, "limits": {"memory": null}})) == nothing
	count(messages(pod({"containers": [null]}))) == 3
}
