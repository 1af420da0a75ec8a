package module

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	bounded "federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
)

var (
	kindName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)
	version  = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
)

// ParseKind reads a kind as policies write it: "Pod", "Deployment.apps", or pinned
// to a version, as kubectl writes that: "HTTPRoute.v1.gateway.networking.k8s.io",
// "Pod.v1".
func ParseKind(s string) (KindRef, error) {
	kind, group, _ := strings.Cut(s, ".")
	var k KindRef
	if first, rest, _ := strings.Cut(group, "."); version.MatchString(first) {
		k.Version, group = first, rest
	}
	if !kindName.MatchString(kind) || strings.HasSuffix(s, ".") {
		return KindRef{}, fmt.Errorf("%q is not a kind such as Pod, Deployment.apps or Deployment.v1.apps", clip(s))
	}
	if group != "" {
		if problems := validation.IsDNS1123Subdomain(group); len(problems) > 0 {
			return KindRef{}, fmt.Errorf("%q is not a kind: %q is not an API group", clip(s), clip(group))
		}
	}
	k.Kind = aggregate.MakeKind(kind, group)
	return k, nil
}

// String writes the kind as ParseKind reads it.
func (k KindRef) String() string {
	if k.Version == "" {
		return string(k.Kind)
	}
	kind, group := k.Kind.Split()
	if group == "" {
		return kind + "." + k.Version
	}
	return kind + "." + k.Version + "." + group
}

// clip keeps messages about hostile input short.
func clip(s string) string {
	return bounded.Text(s, 80)
}
