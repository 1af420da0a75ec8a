package federator.workloads.unfinished_job_test

import data.federator.workloads.unfinished_job

started := "2026-01-01T00:00:00Z"

messages(object, instants) := {v.msg | some v in found} if {
	found := unfinished_job.violation with input as {"object": object, "parameters": {"after": "24h"}}
		with data.fleet as {"passed": {instant: true | some instant in instants}}
}

late := ["2026-01-02T00:00:00Z"]

runs := {"has run for more than 24h, since 2026-01-01T00:00:00Z"}

test_runs if {
	messages({"status": {"startTime": started, "active": 1}}, late) == runs
	messages({"status": {"startTime": started, "conditions": [{"type": "Complete", "status": "False"}]}}, late) == runs
}

test_not_yet if messages({"status": {"startTime": started}}, []) == set()

test_ended if {
	every kind in ["Complete", "Failed"] {
		messages({"status": {"startTime": started, "conditions": [{"type": kind, "status": "True"}]}}, late) == set()
	}
	messages({"spec": {"suspend": true}, "status": {"startTime": started}}, late) == set()
	messages({"status": {}}, late) == set()
}

test_odd_objects if {
	every x in [null, "", 1, [], {}, [null]] {
		messages({"status": x}, late) == set()
		messages({"status": {"startTime": x}}, late) == set()
		messages({"spec": x, "status": {"startTime": started, "conditions": x}}, late) == runs
	}
}
