package federator.hygiene.suspended_cronjob_test

import data.federator.hygiene.suspended_cronjob

cronjob(object) := {
	"ref": {"member": "fleet/eu-1", "kind": "CronJob.batch", "namespace": "shop", "name": "backup"},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": {"annotation": "why"},
}

messages(subject) := {v.msg | some v in suspended_cronjob.violation with input as subject}

never := {"suspended without annotation why; it never ran"}

test_suspended if {
	messages(cronjob({"spec": {"suspend": true}})) == never
	messages(cronjob({"spec": {"suspend": true}, "status": {"lastScheduleTime": "2026-01-02T03:00:00Z"}})) == {"suspended without annotation why; it last ran at 2026-01-02T03:00:00Z"}
}

test_explained if {
	messages(cronjob({"metadata": {"annotations": {"why": "moved to eu-2"}}, "spec": {"suspend": true}})) == set()
	messages(cronjob({"metadata": {"annotations": {"why": " "}}, "spec": {"suspend": true}})) == never
	messages(cronjob({"metadata": {"annotations": {"other": "moved"}}, "spec": {"suspend": true}})) == never
}

test_running if {
	messages(cronjob({"spec": {"suspend": false}})) == set()
	messages(cronjob({"spec": {}})) == set()
}

test_odd_objects if {
	every x in [null, "", "x", 1, [], {}, [null], {"": null}] {
		messages(cronjob({"spec": x})) == set()
		messages(cronjob({"spec": {"suspend": x}})) == set()
		messages(cronjob({"metadata": {"annotations": x}, "spec": {"suspend": true}, "status": x})) == never
	}
	every x in [null, "", 1, [], {}] {
		messages(cronjob({"metadata": {"annotations": {"why": x}}, "spec": {"suspend": true}, "status": {"lastScheduleTime": 1}})) == never
	}
	messages(cronjob({})) == set()
}
