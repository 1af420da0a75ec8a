package remediate

import (
	"fmt"
	"path"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/policy"
)

// Annotations that federator reads and writes on members' objects.
const (
	// protectAnnotation, with any value, prevents federator from writing an object.
	protectAnnotation = api.ProtectKey
	// actionAnnotation names the Action that wrote an object last.
	actionAnnotation = api.ActionKey
	// redactedAnnotation marks objects in the index whose values are redacted.
	redactedAnnotation = api.RedactedKey
)

// protectedGroups are API groups that are never written: they decide who may do what, what
// members' API servers serve, and how the fleet is managed.
var protectedGroups = map[string]string{
	"rbac.authorization.k8s.io":    "RBAC",
	"admissionregistration.k8s.io": "admission webhooks and policies",
	"apiextensions.k8s.io":         "CustomResourceDefinitions",
	"apiregistration.k8s.io":       "APIServices",
	"authentication.k8s.io":        "reviews",
	"authorization.k8s.io":         "reviews",
	"certificates.k8s.io":          "certificates of the cluster",
	"federator.dev":                "federator's own objects",
}

// Protection is what is never written in addition to what Protected says.
type Protection struct {
	// Kinds are patterns of kinds as kubectl writes them ("Secret", "*.cert-manager.io"), and
	// Namespaces of namespaces ("*-system"): * stands for any text.
	Kinds, Namespaces []string
}

// Validate returns what is wrong with the patterns.
func (p *Protection) Validate() error {
	for what, patterns := range map[string][]string{"kind": p.Kinds, "namespace": p.Namespaces} {
		for _, pattern := range patterns {
			if pattern == "" || strings.ContainsAny(pattern, "?[]\\/ ") {
				return fmt.Errorf("%q is not a pattern of a %s: only * is special", pattern, what)
			}
		}
	}
	return nil
}

// protected returns why a target is never written, or "".
func (p *Protection) protected(target policy.Ref, annotations map[string]string) string {
	if why := Protected(target, annotations); why != "" {
		return why
	}
	for _, pattern := range p.Kinds {
		if matches(pattern, string(target.Kind)) {
			return "kind " + string(target.Kind) + " is protected by configuration"
		}
	}
	for _, pattern := range p.Namespaces {
		if target.Namespace != "" && matches(pattern, target.Namespace) {
			return "namespace " + target.Namespace + " is protected by configuration"
		}
	}
	return ""
}

// matches reports whether a text matches a pattern, in which * stands for any text.
func matches(pattern, text string) bool {
	ok, err := path.Match(pattern, text) // neither has a slash
	return ok || err != nil
}

// Protected returns why a target is never written, whatever its policy says, or "".
func (d *Dispatcher) Protected(target policy.Ref, annotations map[string]string) string {
	return d.opts.Protection.protected(target, annotations)
}

// Protected returns why a target is never written by any federator, or "".
func Protected(target policy.Ref, annotations map[string]string) string {
	kind, group := target.Kind.Split()
	if what, ok := protectedGroups[group]; ok {
		return what + " are protected"
	}
	_, marked := annotations[protectAnnotation]
	switch {
	case group == clusterv1.GroupVersion.Group || strings.HasSuffix(group, "."+clusterv1.GroupVersion.Group):
		return "Cluster API's objects are protected"
	case kind == "Namespace" && group == "":
		return "Namespaces are protected"
	case target.Namespace == "kube-system":
		return "kube-system is protected"
	case marked:
		return "it is annotated " + protectAnnotation
	}
	return ""
}
