package federator.hygiene.orphaned_pvc_test

import data.federator.hygiene.orphaned_pvc

of(kind, name, object) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": name},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": {"labels": ["keep"]},
}

bound := {"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}}}

nothing := {"used": {}, "made": {}}

used_by_a_pod := {"used": {"fleet/eu-1/shop/data": [{"ref": {"member": "fleet/eu-1", "kind": "Pod", "namespace": "shop", "name": "db"}, "value": "Pod"}]}, "made": {}}

made_by_a_set := {"used": {}, "made": {"fleet/eu-1/shop/data-db": [{"ref": {"member": "fleet/eu-1", "kind": "StatefulSet.apps", "namespace": "shop", "name": "db"}, "value": true}]}}

messages(subject, views) := {v.msg |
	some v in orphaned_pvc.violation with input as subject
		with data.fleet as {"views": {"federator.hygiene.orphaned_pvc": views}}
}

keys(view, object) := {key |
	views := orphaned_pvc.view with input as object
	some key, _ in views[view]
}

unused := {"nothing uses the claim of 10Gi"}

test_unused if {
	messages(of("PersistentVolumeClaim", "data", bound), nothing) == unused
	messages(of("PersistentVolumeClaim", "other", bound), used_by_a_pod) == unused
}

test_used if {
	messages(of("PersistentVolumeClaim", "data", bound), used_by_a_pod) == set()
}

test_made_by_a_stateful_set if {
	messages(of("PersistentVolumeClaim", "data-db-0", bound), made_by_a_set) == set()
	messages(of("PersistentVolumeClaim", "data-db-12", bound), made_by_a_set) == set()
	every name in ["data-db", "data-db-0-old", "data-db2-0", "my-data-db-0"] {
		messages(of("PersistentVolumeClaim", name, bound), made_by_a_set) == unused
	}
}

test_kept_on_purpose if {
	messages(of("PersistentVolumeClaim", "data", object.union(bound, {"metadata": {"labels": {"keep": ""}}})), nothing) == set()
	messages(of("PersistentVolumeClaim", "data", object.union(bound, {"metadata": {"labels": {"team": "keep"}}})), nothing) == unused
}

test_not_bound if {
	every phase in ["Pending", "Lost", "", null] {
		messages(of("PersistentVolumeClaim", "data", {"status": {"phase": phase}}), nothing) == set()
	}
	messages(of("PersistentVolumeClaim", "data", {}), nothing) == set()
}

test_other_kinds_are_not_evaluated if {
	messages(of("Pod", "data", bound), nothing) == set()
}

test_what_uses_claims if {
	spec := {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "emptyDir": {}}]}
	keys("used", of("Pod", "db", {"spec": spec})) == {"fleet/eu-1/shop/data"}
	every kind in ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch"] {
		keys("used", of(kind, "db", {"spec": {"template": {"spec": spec}}})) == {"fleet/eu-1/shop/data"}
	}
	keys("used", of("CronJob.batch", "db", {"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}})) == {"fleet/eu-1/shop/data"}
}

test_claims_that_a_pod_brings if {
	pod := of("Pod", "db", {"spec": {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}})
	keys("used", pod) == {"fleet/eu-1/shop/db-scratch"}
}

test_claims_that_a_stateful_set_makes if {
	spec := {"volumeClaimTemplates": [{"metadata": {"name": "data"}}, {"metadata": {"name": "log"}}]}
	keys("made", of("StatefulSet.apps", "db", {"spec": spec})) == {"fleet/eu-1/shop/data-db", "fleet/eu-1/shop/log-db"}
	keys("made", of("Deployment.apps", "db", {"spec": spec})) == set()
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], [[]], {"": null}] {
		messages(of("PersistentVolumeClaim", "data", object.union(bound, {"spec": x})), nothing) == unused
		messages(of("PersistentVolumeClaim", "data", object.union(bound, {"metadata": {"labels": x}})), nothing) == unused
		messages(of("PersistentVolumeClaim", "data", {"status": x}), nothing) == set()
		messages(of("PersistentVolumeClaim", "data", {"status": {"phase": "Bound", "capacity": x}}), nothing) == {"nothing uses the claim"}
		keys("used", of("Pod", "db", {"spec": {"volumes": x}})) == set()
		keys("used", of("Pod", "db", {"spec": {"volumes": [x, {"persistentVolumeClaim": x}, {"ephemeral": x}]}})) == set()
		keys("made", of("StatefulSet.apps", "db", {"spec": {"volumeClaimTemplates": x}})) == set()
		keys("made", of("StatefulSet.apps", "db", {"spec": {"volumeClaimTemplates": [x, {"metadata": x}]}})) == set()
	}
	every x in [null, 1, true, [], {}] {
		keys("used", of("Pod", "db", {"spec": {"volumes": [{"persistentVolumeClaim": {"claimName": x}}, {"name": x, "ephemeral": {}}]}})) == set()
	}
}
