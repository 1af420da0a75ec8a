package federator.availability.node_not_ready_test

import data.federator.availability.node_not_ready

node(status) := {"metadata": {}, "status": {"conditions": [
	{"type": "DiskPressure", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"},
	{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"},
]}}

messages(object, instants) := {v.msg | some v in found} if {
	found := node_not_ready.violation with input as {"object": object, "parameters": {"after": "15m", "annotation": "resting"}}
		with data.fleet as {"passed": {instant: true | some instant in instants}}
}

late := ["2026-01-01T00:15:00Z"]

test_not_ready if {
	every status in ["False", "Unknown"] {
		messages(node(status), late) == {"not ready for more than 15m, since 2026-01-01T00:00:00Z"}
	}
}

test_ready if messages(node("True"), late) == set()

test_not_yet if messages(node("False"), []) == set()

test_maintenance if messages(object.union(node("False"), {"metadata": {"annotations": {"resting": "new disk"}}}), late) == set()

test_odd_objects if {
	every x in [null, "", 1, [], {}, [null]] {
		messages({"status": x}, late) == set()
		messages({"status": {"conditions": x}}, late) == set()
		messages({"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": x}]}}, late) == set()
	}
}
