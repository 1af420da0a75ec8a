package federator.security.privileged_test

import data.federator.security.privileged

parameters := {"capabilities": ["CHOWN", "NET_BIND_SERVICE"], "hostPaths": []}

pod(spec) := of("Pod", {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}, parameters)

of(kind, object, with_parameters) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": "web"},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": with_parameters,
}

messages(subject) := {v.msg | some v in privileged.violation with input as subject}

adding(capabilities) := {"containers": [{"name": "app", "securityContext": {"capabilities": {"add": capabilities}}}]}

mounting(path) := {"containers": [{"name": "app"}], "volumes": [{"name": "data", "hostPath": {"path": path}}]}

test_privileged if {
	messages(pod({"containers": [{"name": "app", "securityContext": {"privileged": true}}]})) == {"container app is privileged"}
}

test_every_list_of_containers if {
	privileged_one := [{"name": "app", "securityContext": {"privileged": true}}]
	every list in ["containers", "initContainers", "ephemeralContainers"] {
		messages(pod({list: privileged_one})) == {"container app is privileged"}
	}
}

test_not_privileged if {
	messages(pod({"containers": [
		{"name": "a", "securityContext": {"privileged": false}},
		{"name": "b", "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}}},
		{"name": "c"},
	]})) == set()
}

test_templates if {
	spec := {"containers": [{"name": "app", "securityContext": {"privileged": true}}]}
	every kind in ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch"] {
		messages(of(kind, {"spec": {"template": {"spec": spec}}}, parameters)) == {"container app is privileged"}
	}
	cron := {"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}
	messages(of("CronJob.batch", cron, parameters)) == {"container app is privileged"}
}

test_capabilities if {
	messages(pod(adding(["NET_ADMIN"]))) == {"container app adds capability NET_ADMIN"}
	messages(pod(adding(["CHOWN"]))) == set()
	messages(pod(adding(["CAP_NET_ADMIN", "cap_chown"]))) == {"container app adds capability NET_ADMIN"}
	messages(pod(adding(["ALL"]))) == {"container app adds capability ALL"}
}

test_all_capabilities_allowed if {
	messages(of("Pod", {"spec": adding(["SYS_ADMIN"])}, object.union(parameters, {"capabilities": ["ALL"]}))) == set()
}

test_host_paths if {
	messages(pod(mounting("/etc"))) == {"volume data mounts /etc of the node"}
	logs := object.union(parameters, {"hostPaths": ["/var/log", "/run/"]})
	every path in ["/var/log", "/var/log/", "/var/log/pods", "/run/containerd"] {
		messages(of("Pod", {"spec": mounting(path)}, logs)) == set()
	}
	every path in ["/var", "/", "/var/logs", "/runner"] {
		count(messages(of("Pod", {"spec": mounting(path)}, logs))) == 1
	}
	messages(of("Pod", {"spec": mounting("/etc")}, object.union(parameters, {"hostPaths": ["/"]}))) == set()
}

test_other_volumes if {
	messages(pod({"containers": [{"name": "app"}], "volumes": [{"name": "data", "emptyDir": {}}, {"name": "none"}]})) == set()
}

test_made_of_a_template if {
	spec := {"containers": [{"name": "app", "securityContext": {"privileged": true}}]}
	owner := {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}
	messages(of("Pod", {"metadata": {"ownerReferences": [owner]}, "spec": spec}, parameters)) == set()

	# A ReplicaSet that no Deployment made is not subject itself.
	set_owner := object.union(owner, {"kind": "ReplicaSet"})
	bare := {"metadata": {"ownerReferences": [set_owner]}, "spec": spec}
	count(messages(of("Pod", bare, parameters))) == 1
	hashed := object.union(bare, {"metadata": {"labels": {"pod-template-hash": "5d9"}}})
	messages(of("Pod", hashed, parameters)) == set()

	job_owner := {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": true}
	messages(of("Pod", {"metadata": {"ownerReferences": [job_owner]}, "spec": spec}, parameters)) == set()
	cron_owner := object.union(job_owner, {"kind": "CronJob"})
	job := {"metadata": {"ownerReferences": [cron_owner]}, "spec": {"template": {"spec": spec}}}
	messages(of("Job.batch", job, parameters)) == set()

	# Nobody's controller, or somebody else's.
	every odd in [object.remove(owner, ["controller"]), object.union(owner, {"apiVersion": "example.com/v1"})] {
		count(messages(of("Pod", {"metadata": {"ownerReferences": [odd]}, "spec": spec}, parameters))) == 1
	}
}

test_names_may_be_missing if {
	messages(pod({"containers": [{"securityContext": {"privileged": true}}]})) == {"container (unnamed) is privileged"}
}

test_odd_objects if {
	odd := [null, "", "x", 1, true, [], {}, [null], [[]], {"": null}]
	every x in odd {
		messages(pod(x)) == set()
		messages(of("Pod", {"spec": {"containers": [{"name": "app"}]}, "metadata": {"ownerReferences": x}}, parameters)) == set()
		every field in ["containers", "initContainers", "ephemeralContainers", "volumes"] {
			messages(pod({field: x})) == set()
		}
		messages(pod({"containers": [{"name": "app", "securityContext": x}]})) == set()
		messages(pod({"containers": [{"name": "app", "securityContext": {"capabilities": x}}]})) == set()
		messages(pod({"containers": [{"name": "app", "securityContext": {"capabilities": {"add": [x]}}}]})) == {m |
			is_string(x)
			m := sprintf("container app adds capability %s", [upper(x)])
		}
		messages(pod({"volumes": [{"name": "data", "hostPath": x}]})) == set()
	}
	messages(of("CronJob.batch", {}, parameters)) == set()
	messages(of("Service", {"spec": {}}, parameters)) == set()
}
