package federator.tenancy.unused_namespace_test

import data.federator.tenancy.unused_namespace

namespace(name, meta) := {
	"ref": {"member": "fleet/eu-1", "kind": "Namespace", "namespace": "", "name": name},
	"object": {"metadata": meta}, "parameters": {"days": 30, "annotation": "kept"},
}

messages(subject, used, instants) := {v.msg | some v in found} if {
	found := unused_namespace.violation with input as subject with data.fleet as {
		"passed": {instant: true | some instant in instants},
		"views": {"federator.tenancy.unused_namespace": {"used": {key: [{"ref": {}, "value": true}] | some key in used}}},
	}
}

old := {"creationTimestamp": "2026-01-01T00:00:00Z"}

late := ["2026-01-31T00:00:00Z"]

forgotten := {"nothing runs in it, and it is more than 30 days old"}

test_forgotten if {
	messages(namespace("shop", old), [], late) == forgotten
	messages(namespace("shop", old), ["fleet/us-1 shop", "fleet/eu-1 pay"], late) == forgotten
}

test_used if messages(namespace("shop", old), ["fleet/eu-1 shop"], late) == set()

test_young if messages(namespace("shop", old), [], []) == set()

test_kept if {
	messages(namespace("shop", object.union(old, {"annotations": {"kept": "for spring"}})), [], late) == set()
	messages(namespace("kube-system", old), [], late) == set()
	messages(namespace("default", old), [], late) == set()
}

test_what_is_used if {
	pod := {"ref": {"member": "fleet/eu-1", "kind": "Pod", "namespace": "shop", "name": "web"}, "object": {}}
	views := unused_namespace.view with input as pod
	views.used == {"fleet/eu-1 shop": {true}}
	none := unused_namespace.view with input as namespace("shop", old)
	object.get(none, "used", {}) == {}
	messages(object.union(pod, {"parameters": {"days": 30, "annotation": "kept"}}), [], late) == set()
}

test_odd_objects if {
	every x in [null, "", 1, [], {}, [null]] {
		messages(namespace("shop", x), [], late) == set()
		messages(namespace("shop", {"creationTimestamp": x}), [], late) == set()
	}
}
