package flat

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Join returns the flat name of a namespace or a cluster-scoped object of a member. The
// member is written "<namespace>/<name>" of its Cluster, a DNS label and a DNS subdomain.
// The flat name of "" is "".
func Join(member, name string) string {
	if name == "" {
		return ""
	}
	return string(appendPrefix(nil, member)) + name
}

// appendPrefix appends the prefix of the original name, with its dot.
func appendPrefix(dst []byte, member string) []byte {
	namespace, cluster, _ := strings.Cut(member, "/")
	dst = append(append(dst, namespace...), '.')
	for i := range len(cluster) {
		if c := cluster[i]; c != '.' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '_')
		}
	}
	return append(dst, '.')
}

// Split is the inverse of Join. It refuses names that Join cannot return.
func Split(flat string) (member, name string, ok bool) {
	namespace, rest, _ := strings.Cut(flat, ".")
	cluster, name, _ := strings.Cut(rest, ".")
	cluster = strings.ReplaceAll(cluster, "_", ".")
	if name == "" || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(cluster)) > 0 {
		return "", "", false
	}
	return namespace + "/" + cluster, name, true
}
