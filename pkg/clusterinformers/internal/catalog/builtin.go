package catalog

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"federator.dev/federator/pkg/aggregate"
)

// builtinResources are the resources of Kubernetes itself by kind: what a member
// says that they are called decides nothing. It is not written to after init.
var builtinResources = makeBuiltinResources()

// builtinKinds are the kinds of builtinResources.
var builtinKinds = invert(builtinResources)

// makeBuiltinResources takes the kinds of client-go's scheme that are objects.
// Their plurals follow one rule; a test holds them to what an API server serves.
func makeBuiltinResources() map[aggregate.Kind]schema.GroupResource {
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

// NamespacedBuiltin reports whether a kind is one of Kubernetes's own that have
// namespaces.
func NamespacedBuiltin(kind aggregate.Kind) bool {
	_, builtin := builtinResources[kind]
	return builtin && !clusterScoped[kind]
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
