package federator.lib.image_test

import data.federator.lib.image

test_names if {
	names := {
		"nginx": "docker.io/library/nginx",
		"nginx:1.27": "docker.io/library/nginx",
		"acme/web:v1": "docker.io/acme/web",
		"docker.io/acme/web": "docker.io/acme/web",
		"index.docker.io/acme/web:1": "docker.io/acme/web",
		"ghcr.io/acme/web:v1": "ghcr.io/acme/web",
		"localhost/web": "localhost/web",
		"localhost:5000/web:v1": "localhost:5000/web",
		"registry:5000/a/b/c": "registry:5000/a/b/c",
		"ghcr.io/acme/web@sha256:0a": "ghcr.io/acme/web",
		"ghcr.io/acme/web:v1@sha256:0a": "ghcr.io/acme/web",
		"": "docker.io/library/",
	}
	every reference, name in names {
		image.name(reference) == name
	}
}

test_tags if {
	tags := {
		"nginx": "latest",
		"nginx:1.27": "1.27",
		"localhost:5000/web": "latest",
		"localhost:5000/web:v1": "v1",
		"web:v1@sha256:0a": "v1",
	}
	every reference, tag in tags {
		image.tag(reference) == tag
	}
	not image.tag("web@sha256:0a")
}

test_digests if {
	image.digest("web:v1@sha256:0a") == "sha256:0a"
	not image.digest("web:v1")
}

test_within if {
	image.within("nginx", "docker.io")
	image.within("nginx", "docker.io/library")
	image.within("ghcr.io/acme/web:v1", "ghcr.io/acme/")
	image.within("ghcr.io/acme/web:v1", "ghcr.io/acme/web")
	not image.within("ghcr.io/acme-labs/web", "ghcr.io/acme")
	not image.within("ghcr.io.example/acme/web", "ghcr.io")
	not image.within("acme/web", "ghcr.io")
}
