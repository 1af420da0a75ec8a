package federator.workloads.pending_pod_test

import data.federator.workloads.pending_pod

created := "2026-01-01T00:00:00Z"

pod(status) := {"metadata": {"creationTimestamp": created}, "status": status}

messages(object, instants) := {v.msg | some v in found} if {
	found := pending_pod.violation with input as {"object": object, "parameters": {"after": "1h"}}
		with data.fleet as {"passed": {instant: true | some instant in instants}}
}

late := ["2026-01-01T01:00:00Z"]

test_pending if {
	messages(pod({"phase": "Pending"}), late) == {"pending for more than 1h"}
	messages(pod({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}), late) == {"pending for more than 1h: Unschedulable"}
	waiting := {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
	messages(pod({"phase": "Pending", "containerStatuses": [waiting]}), late) == {"pending for more than 1h: ImagePullBackOff"}
}

test_not_yet if messages(pod({"phase": "Pending"}), ["2026-01-01T00:59:59Z"]) == set()

test_running if messages(pod({"phase": "Running"}), late) == set()

test_odd_objects if {
	every x in [null, "", 1, [], {}, [null]] {
		messages({"metadata": x, "status": {"phase": "Pending"}}, late) == set()
		messages({"metadata": {"creationTimestamp": x}, "status": {"phase": "Pending"}}, late) == set()
		messages(pod(x), late) == set()
		messages(pod({"phase": "Pending", "conditions": x, "containerStatuses": x}), late) == {"pending for more than 1h"}
	}
}
