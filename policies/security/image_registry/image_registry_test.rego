package federator.security.image_registry_test

import data.federator.security.image_registry

parameters := {"registries": [], "movingTags": ["latest"], "digest": false, "placeholders": ["auto"]}

of(kind, object, with_parameters) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": "shop", "name": "web"},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": with_parameters,
}

messages(subject) := {v.msg | some v in image_registry.violation with input as subject}

with_image(image, changes) := of(
	"Pod",
	{"spec": {"containers": [{"name": "app", "image": image}]}},
	object.union(parameters, changes),
)

test_registries if {
	acme := {"registries": ["ghcr.io/acme", "registry.k8s.io"]}
	every image in ["ghcr.io/acme/web:v1", "registry.k8s.io/pause:3.10", "ghcr.io/acme/web@sha256:0a"] {
		messages(with_image(image, acme)) == set()
	}
	every image in ["nginx:1.27", "ghcr.io/acme-labs/web:v1", "ghcr.io/other/web:v1", "registry.k8s.io.example/pause:3"] {
		messages(with_image(image, acme)) == {sprintf("container app uses an image from a registry that is not allowed: %s", [image])}
	}
	messages(with_image("nginx:1.27", {"registries": ["docker.io/library"]})) == set()
}

test_no_registries_allow_all if {
	messages(with_image("anywhere.example:5000/web:v1", {})) == set()
}

test_moving_tags if {
	every image in ["nginx", "nginx:latest", "localhost:5000/nginx"] {
		messages(with_image(image, {})) == {sprintf("container app uses an image with the mutable tag latest: %s", [image])}
	}
	messages(with_image("nginx:1.27", {})) == set()
	messages(with_image("nginx:main", {"movingTags": ["main", "latest"]})) == {"container app uses an image with the mutable tag main: nginx:main"}
	messages(with_image("nginx", {"movingTags": []})) == set()
}

test_a_digest_pins_whatever_the_tag if {
	messages(with_image("nginx:latest@sha256:0a", {"digest": true})) == set()
	messages(with_image("nginx@sha256:0a", {"digest": true})) == set()
	messages(with_image("nginx:1.27", {"digest": true})) == {"container app uses an image without a digest: nginx:1.27"}
}

test_every_place_of_an_image if {
	every list in ["containers", "initContainers", "ephemeralContainers"] {
		count(messages(of("Pod", {"spec": {list: [{"name": "app", "image": "nginx"}]}}, parameters))) == 1
	}
	volumes := [{"name": "model", "image": {"reference": "models/large"}}, {"name": "none", "emptyDir": {}}]
	messages(of("Pod", {"spec": {"volumes": volumes}}, parameters)) == {"volume model uses an image with the mutable tag latest: models/large"}
}

test_templates if {
	spec := {"containers": [{"name": "app", "image": "nginx"}]}
	every kind in ["Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch"] {
		count(messages(of(kind, {"spec": {"template": {"spec": spec}}}, parameters))) == 1
	}
	count(messages(of("CronJob.batch", {"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}, parameters))) == 1
}

test_made_of_a_template if {
	owner := {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}
	pod := {"metadata": {"ownerReferences": [owner]}, "spec": {"containers": [{"name": "app", "image": "nginx"}]}}
	messages(of("Pod", pod, parameters)) == set()
}

test_placeholders if {
	messages(with_image("auto", {"digest": true, "registries": ["ghcr.io"]})) == set()
}

test_odd_objects if {
	strict := {"digest": true, "registries": ["ghcr.io"]}
	every x in [null, "", 1, true, [], {}, [null], [[]], {"": null}] {
		messages(with_image(x, strict)) == set()
		messages(of("Pod", {"spec": x}, object.union(parameters, strict))) == set()
		messages(of("Pod", {"spec": {"containers": x, "volumes": x}}, object.union(parameters, strict))) == set()
		messages(of("Pod", {"spec": {"volumes": [{"name": "v", "image": x}]}}, object.union(parameters, strict))) == set()
		messages(of("Pod", {"spec": {"volumes": [{"name": "v", "image": {"reference": x}}]}}, object.union(parameters, strict))) == set()
	}

	# What no registry would take is told of, not an error.
	every x in ["/", ":", "@", "a:b:c", "//", "a/:", "@@", "/:@"] {
		count(messages(with_image(x, strict))) > 0
	}
}
