// Package builtin knows the kinds of Kubernetes itself: what their resources are called, and which have namespaces.
// It knows them of client-go's scheme, and talks to nobody.
package builtin

import (
	"iter"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"federator.dev/federator/pkg/aggregate"
)

// resources are the resources of the kinds, and kinds the kinds of these. Neither is written to after init.
var (
	resources = makeResources()
	kinds     = invert(resources)
)

// makeResources takes the kinds of client-go's scheme that are objects.
// Their plurals follow one rule; a test holds them to what an API server serves.
func makeResources() map[aggregate.Kind]schema.GroupResource {
	out := map[aggregate.Kind]schema.GroupResource{
		"APIService.apiregistration.k8s.io":             {Group: "apiregistration.k8s.io", Resource: "apiservices"},
		"CustomResourceDefinition.apiextensions.k8s.io": {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	}
	object := reflect.TypeFor[metav1.Object]()
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if !reflect.PointerTo(t).Implements(object) {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		out[aggregate.MakeKind(gvk.Kind, gvk.Group)] = plural.GroupResource()
	}
	return out
}

func invert(resources map[aggregate.Kind]schema.GroupResource) map[schema.GroupResource]aggregate.Kind {
	out := make(map[schema.GroupResource]aggregate.Kind, len(resources))
	for kind, resource := range resources {
		out[resource] = kind
	}
	return out
}

// Resource returns the resource of a kind, ok false where the kind is none of Kubernetes itself.
func Resource(kind aggregate.Kind) (resource schema.GroupResource, ok bool) {
	resource, ok = resources[kind]
	return resource, ok
}

// KindOf returns the kind of a resource, ok false where the resource is none of Kubernetes itself.
func KindOf(resource schema.GroupResource) (kind aggregate.Kind, ok bool) {
	kind, ok = kinds[resource]
	return kind, ok
}

// All yields the kinds with their resources, in no order.
func All() iter.Seq2[aggregate.Kind, schema.GroupResource] { return maps.All(resources) }

// Namespaced reports whether a kind is one of Kubernetes itself, and has namespaces.
func Namespaced(kind aggregate.Kind) bool {
	_, ok := resources[kind]
	return ok && !clusterScoped[kind]
}

// clusterScoped are the kinds of Kubernetes itself that have no namespaces.
var clusterScoped = map[aggregate.Kind]bool{
	"Namespace": true, "Node": true, "PersistentVolume": true, "ComponentStatus": true,
	"ClusterRole.rbac.authorization.k8s.io": true, "ClusterRoleBinding.rbac.authorization.k8s.io": true,
	"MutatingAdmissionPolicy.admissionregistration.k8s.io": true, "MutatingAdmissionPolicyBinding.admissionregistration.k8s.io": true,
	"MutatingWebhookConfiguration.admissionregistration.k8s.io": true, "ValidatingWebhookConfiguration.admissionregistration.k8s.io": true,
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io": true, "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io": true,
	"CertificateSigningRequest.certificates.k8s.io": true, "ClusterTrustBundle.certificates.k8s.io": true,
	"FlowSchema.flowcontrol.apiserver.k8s.io": true, "PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io": true,
	"IngressClass.networking.k8s.io": true, "IPAddress.networking.k8s.io": true, "ServiceCIDR.networking.k8s.io": true,
	"APIService.apiregistration.k8s.io": true, "CustomResourceDefinition.apiextensions.k8s.io": true,
	"RuntimeClass.node.k8s.io": true, "PriorityClass.scheduling.k8s.io": true,
	"CSIDriver.storage.k8s.io": true, "CSINode.storage.k8s.io": true, "StorageClass.storage.k8s.io": true,
	"VolumeAttachment.storage.k8s.io": true, "VolumeAttributesClass.storage.k8s.io": true,
	"DeviceClass.resource.k8s.io": true, "DeviceTaintRule.resource.k8s.io": true, "ResourceSlice.resource.k8s.io": true,
	"StorageVersion.internal.apiserver.k8s.io": true, "StorageVersionMigration.storagemigration.k8s.io": true,
	"TokenReview.authentication.k8s.io": true, "SelfSubjectReview.authentication.k8s.io": true,
	"SelfSubjectAccessReview.authorization.k8s.io": true, "SelfSubjectRulesReview.authorization.k8s.io": true,
	"SubjectAccessReview.authorization.k8s.io": true,
}
