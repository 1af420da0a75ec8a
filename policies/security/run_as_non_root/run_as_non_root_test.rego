package federator.security.run_as_non_root_test

import data.federator.security.run_as_non_root

parameters := {"acceptUser": true}

of(kind, object, with_parameters) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": "web"},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": with_parameters,
}

pod(spec) := of("Pod", {"spec": spec}, parameters)

messages(subject) := {v.msg | some v in run_as_non_root.violation with input as subject}

container(context) := {"name": "app", "securityContext": context}

may := {"container app may run as root"}

zero := {"container app runs as user 0"}

test_nothing_said if {
	messages(pod({"containers": [{"name": "app"}]})) == may
	messages(pod({"containers": [container({})], "securityContext": {}})) == may
}

test_said_by_the_container if {
	messages(pod({"containers": [container({"runAsNonRoot": true})]})) == set()
	messages(pod({"containers": [container({"runAsUser": 1000})]})) == set()
	messages(pod({"containers": [container({"runAsNonRoot": false})]})) == may
	messages(pod({"containers": [container({"runAsUser": 0})]})) == zero
}

test_said_by_the_pod if {
	messages(pod({"containers": [{"name": "app"}], "securityContext": {"runAsNonRoot": true}})) == set()
	messages(pod({"containers": [{"name": "app"}], "securityContext": {"runAsUser": 1000}})) == set()
	messages(pod({"containers": [{"name": "app"}], "securityContext": {"runAsUser": 0}})) == zero
}

test_the_container_goes_before_the_pod if {
	messages(pod({"containers": [container({"runAsNonRoot": false})], "securityContext": {"runAsNonRoot": true}})) == may
	messages(pod({"containers": [container({"runAsNonRoot": true})], "securityContext": {"runAsNonRoot": false}})) == set()
	messages(pod({"containers": [container({"runAsUser": 0})], "securityContext": {"runAsUser": 1000}})) == zero
	messages(pod({"containers": [container({"runAsUser": 1000})], "securityContext": {"runAsUser": 0}})) == set()
}

test_user_0_contradicts if {
	messages(pod({"containers": [container({"runAsNonRoot": true, "runAsUser": 0})]})) == zero
}

test_a_user_is_not_enough if {
	strict := {"acceptUser": false}
	messages(of("Pod", {"spec": {"containers": [container({"runAsUser": 1000})]}}, strict)) == may
	messages(of("Pod", {"spec": {"containers": [container({"runAsUser": 1000, "runAsNonRoot": true})]}}, strict)) == set()
}

test_every_list_of_containers if {
	every list in ["containers", "initContainers", "ephemeralContainers"] {
		messages(pod({list: [{"name": "app"}]})) == may
	}
}

test_templates if {
	spec := {"containers": [{"name": "app"}]}
	every kind in ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch"] {
		messages(of(kind, {"spec": {"template": {"spec": spec}}}, parameters)) == may
	}
	messages(of("CronJob.batch", {"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}, parameters)) == may
}

test_made_of_a_template if {
	owner := {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}
	messages(of("Pod", {"metadata": {"ownerReferences": [owner]}, "spec": {"containers": [{"name": "app"}]}}, parameters)) == set()
}

test_odd_objects if {
	odd := [null, "", "x", true, [], {}, [null], [[]], {"": null}]
	every x in odd {
		messages(pod(x)) == set()
		messages(pod({"containers": [container(x)]})) == may
		messages(pod({"containers": [{"name": "app"}], "securityContext": x})) == may
		messages(pod({"containers": [container({"runAsUser": x})]})) == may
		messages(pod({"containers": [{"name": "app"}], "securityContext": {"runAsUser": x}})) == may
	}
	every x in [null, "", [], {}, {"": null}] {
		messages(pod({"containers": x})) == set()
	}
	messages(pod({"containers": [null]})) == {"container (unnamed) may run as root"}
}
