package sim

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// A Kind is one kind that a member serves.
type Kind struct {
	Group      string
	Kind       string
	Resource   string   // plural, as in paths
	Versions   []string // served, most preferred first
	Namespaced bool
	ShortNames []string
}

// GroupResource names the kind as [Member.Forbid] and other methods do.
func (k Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// goTypes knows the Go types of the built-in kinds; it is never changed after start-up.
var goTypes = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // the schemes that we link disagree
		}
	}
	return s
}()

// BuiltinKinds are the kinds that a member serves by default.
func BuiltinKinds() []Kind {
	var out []Kind
	for _, g := range builtinGroups {
		for _, k := range g.kinds {
			k.Group, k.Versions = g.group, []string{g.version}
			out = append(out, k)
		}
	}
	return out
}

var builtinGroups = []struct {
	group, version string
	kinds          []Kind
}{
	{"", "v1", []Kind{
		{Kind: "ConfigMap", Resource: "configmaps", Namespaced: true, ShortNames: []string{"cm"}},
		{Kind: "Endpoints", Resource: "endpoints", Namespaced: true, ShortNames: []string{"ep"}},
		{Kind: "Event", Resource: "events", Namespaced: true, ShortNames: []string{"ev"}},
		{Kind: "LimitRange", Resource: "limitranges", Namespaced: true, ShortNames: []string{"limits"}},
		{Kind: "Namespace", Resource: "namespaces", ShortNames: []string{"ns"}},
		{Kind: "Node", Resource: "nodes", ShortNames: []string{"no"}},
		{Kind: "PersistentVolume", Resource: "persistentvolumes", ShortNames: []string{"pv"}},
		{Kind: "PersistentVolumeClaim", Resource: "persistentvolumeclaims", Namespaced: true, ShortNames: []string{"pvc"}},
		{Kind: "Pod", Resource: "pods", Namespaced: true, ShortNames: []string{"po"}},
		{Kind: "PodTemplate", Resource: "podtemplates", Namespaced: true},
		{Kind: "ReplicationController", Resource: "replicationcontrollers", Namespaced: true, ShortNames: []string{"rc"}},
		{Kind: "ResourceQuota", Resource: "resourcequotas", Namespaced: true, ShortNames: []string{"quota"}},
		{Kind: "Secret", Resource: "secrets", Namespaced: true},
		{Kind: "Service", Resource: "services", Namespaced: true, ShortNames: []string{"svc"}},
		{Kind: "ServiceAccount", Resource: "serviceaccounts", Namespaced: true, ShortNames: []string{"sa"}},
	}},
	{"admissionregistration.k8s.io", "v1", []Kind{
		{Kind: "MutatingWebhookConfiguration", Resource: "mutatingwebhookconfigurations"},
		{Kind: "ValidatingAdmissionPolicy", Resource: "validatingadmissionpolicies"},
		{Kind: "ValidatingAdmissionPolicyBinding", Resource: "validatingadmissionpolicybindings"},
		{Kind: "ValidatingWebhookConfiguration", Resource: "validatingwebhookconfigurations"},
	}},
	{"apiextensions.k8s.io", "v1", []Kind{
		{Kind: "CustomResourceDefinition", Resource: "customresourcedefinitions", ShortNames: []string{"crd", "crds"}},
	}},
	{"apiregistration.k8s.io", "v1", []Kind{{Kind: "APIService", Resource: "apiservices"}}},
	{"apps", "v1", []Kind{
		{Kind: "ControllerRevision", Resource: "controllerrevisions", Namespaced: true},
		{Kind: "DaemonSet", Resource: "daemonsets", Namespaced: true, ShortNames: []string{"ds"}},
		{Kind: "Deployment", Resource: "deployments", Namespaced: true, ShortNames: []string{"deploy"}},
		{Kind: "ReplicaSet", Resource: "replicasets", Namespaced: true, ShortNames: []string{"rs"}},
		{Kind: "StatefulSet", Resource: "statefulsets", Namespaced: true, ShortNames: []string{"sts"}},
	}},
	{"autoscaling", "v2", []Kind{
		{Kind: "HorizontalPodAutoscaler", Resource: "horizontalpodautoscalers", Namespaced: true, ShortNames: []string{"hpa"}},
	}},
	{"batch", "v1", []Kind{
		{Kind: "CronJob", Resource: "cronjobs", Namespaced: true, ShortNames: []string{"cj"}},
		{Kind: "Job", Resource: "jobs", Namespaced: true},
	}},
	{"certificates.k8s.io", "v1", []Kind{
		{Kind: "CertificateSigningRequest", Resource: "certificatesigningrequests", ShortNames: []string{"csr"}},
	}},
	{"coordination.k8s.io", "v1", []Kind{{Kind: "Lease", Resource: "leases", Namespaced: true}}},
	{"discovery.k8s.io", "v1", []Kind{{Kind: "EndpointSlice", Resource: "endpointslices", Namespaced: true}}},
	{"flowcontrol.apiserver.k8s.io", "v1", []Kind{
		{Kind: "FlowSchema", Resource: "flowschemas"},
		{Kind: "PriorityLevelConfiguration", Resource: "prioritylevelconfigurations"},
	}},
	{"networking.k8s.io", "v1", []Kind{
		{Kind: "Ingress", Resource: "ingresses", Namespaced: true, ShortNames: []string{"ing"}},
		{Kind: "IngressClass", Resource: "ingressclasses"},
		{Kind: "NetworkPolicy", Resource: "networkpolicies", Namespaced: true, ShortNames: []string{"netpol"}},
	}},
	{"node.k8s.io", "v1", []Kind{{Kind: "RuntimeClass", Resource: "runtimeclasses"}}},
	{"policy", "v1", []Kind{
		{Kind: "PodDisruptionBudget", Resource: "poddisruptionbudgets", Namespaced: true, ShortNames: []string{"pdb"}},
	}},
	{"rbac.authorization.k8s.io", "v1", []Kind{
		{Kind: "ClusterRole", Resource: "clusterroles"},
		{Kind: "ClusterRoleBinding", Resource: "clusterrolebindings"},
		{Kind: "Role", Resource: "roles", Namespaced: true},
		{Kind: "RoleBinding", Resource: "rolebindings", Namespaced: true},
	}},
	{"scheduling.k8s.io", "v1", []Kind{{Kind: "PriorityClass", Resource: "priorityclasses", ShortNames: []string{"pc"}}}},
	{"storage.k8s.io", "v1", []Kind{
		{Kind: "CSIDriver", Resource: "csidrivers"},
		{Kind: "CSINode", Resource: "csinodes"},
		{Kind: "CSIStorageCapacity", Resource: "csistoragecapacities", Namespaced: true},
		{Kind: "StorageClass", Resource: "storageclasses", ShortNames: []string{"sc"}},
		{Kind: "VolumeAttachment", Resource: "volumeattachments"},
	}},
}
