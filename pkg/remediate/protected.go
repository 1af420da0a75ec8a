package remediate

import (
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

// Protected returns why a target is never written, or "".
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
