# Package federator.lib.version parses Kubernetes versions.
package federator.lib.version

# minor is the minor version of Kubernetes 1.x, which may have a vendor's suffix. It is
# undefined for other versions.
minor(version) := to_number(parts[1]) if {
	is_string(version)
	parts := regex.find_all_string_submatch_n(`^v?1\.([0-9]{1,3})([^0-9]|$)`, version, 1)[0]
}
