# Package federator.lib.image parses image references as github.com/distribution/reference
# does: [registry/]repository[:tag][@digest].
package federator.lib.image

# name is the registry and repository in full: docker.io/library/nginx for nginx:1.27.
name(image) := sprintf("docker.io/%s", [repository]) if {
	repository := trim_prefix(bare(image), "index.docker.io/")
	repository != bare(image)
} else := bare(image) if {
	has_registry(image)
} else := sprintf("docker.io/%s", [bare(image)]) if {
	contains(bare(image), "/")
} else := sprintf("docker.io/library/%s", [bare(image)])

# tag is the tag: latest if there is neither a tag nor a digest, undefined if there is
# a digest only.
tag(image) := split(last(image), ":")[1] if {
	contains(last(image), ":")
} else := "latest" if not digest(image)

# digest is the digest, such as sha256:….
digest(image) := split(image, "@")[1]

# within holds if an image is in a registry, or in a part of one: ghcr.io/acme includes
# ghcr.io/acme and everything below it, but not ghcr.io/acme-labs.
within(image, prefix) if name(image) == trim_suffix(prefix, "/")

within(image, prefix) if startswith(name(image), concat("", [trim_suffix(prefix, "/"), "/"]))

# The first component is a host if it cannot be a component of a repository.
has_registry(image) if {
	parts := split(bare(image), "/")
	count(parts) > 1
	looks_like_host(parts[0])
}

looks_like_host("localhost")

looks_like_host(part) if contains(part, ".")

looks_like_host(part) if contains(part, ":")

# bare is the reference without tag and digest.
bare(image) := trim_suffix(located(image), concat("", [":", split(last(image), ":")[1]])) if {
	contains(last(image), ":")
} else := located(image)

located(image) := split(image, "@")[0]

# last is the last component with the tag: a colon before it belongs to a port.
last(image) := parts[count(parts) - 1] if parts := split(located(image), "/")
