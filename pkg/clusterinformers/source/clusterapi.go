// Package source has the sources of members: what describes clusters on a hub, contexts of
// kubeconfigs ([NewContexts]) and the hub itself ([NewHub]).
//
// On a hub they are described by the Clusters of Cluster API ([NewClusterAPI]), federator's own
// Members ([NewMembers]), the cluster Secrets of Argo CD ([NewArgoCD]), the ManagedClusters of
// Open Cluster Management ([NewManagedClusters]) and the ClusterProfiles of the Cluster Inventory
// API ([NewClusterProfiles]). All of these wait for their kind to be installed, keep the members
// of a namespace that they may not read any more, and call a member <namespace>/<name> of its
// object unless they say otherwise. Their kubeconfigs are checked by the rules for those of a hub.
package source

import (
	"log/slog"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/secret"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// ClusterAPIOptions is a source of members that are Clusters of a Cluster API
// management cluster. A member's kubeconfig is the value of the Secret
// <name>-kubeconfig in the namespace of its Cluster; where there is a Secret
// <name>-federator, its value is the one that is written with. Both have Cluster API's type.
// Config and Logger are required.
type ClusterAPIOptions struct {
	Config     *rest.Config
	Namespaces []string // to look in; none means all
	Logger     *slog.Logger
}

// NewClusterAPI returns the source, or what is wrong with the options.
func NewClusterAPI(o ClusterAPIOptions) (clusterinformers.Source, error) {
	return newHubObjects(hubOptions{o.Config, o.Namespaces, o.Logger}, memberObjects{
		source: "Cluster API", versions: clusterVersions, resource: "clusters", kind: clusterv1.ClusterKind,
		trim:          func(u *unstructured.Unstructured) description { return trimCluster(u) },
		selectSecrets: secretsOfType(clusterv1.ClusterSecretType),
		keepOf:        keepKubeconfig,
	})
}

// v1beta1 is the older version, whose own package is deprecated.
var v1beta1 = schema.GroupVersion{Group: clusterv1.GroupVersion.Group, Version: "v1beta1"}

// clusterVersions are the versions of Cluster that are understood, the preferred one
// first. Each is also a contract of Cluster API: it says in its own way that a control
// plane is initialized.
var clusterVersions = []schema.GroupVersion{clusterv1.GroupVersion, v1beta1}

// writeSuffix ends the name of the Secret with the kubeconfig that a member is written with,
// after that of its Cluster. Members without one are written with that of Cluster API, which
// may do everything.
const writeSuffix = "-federator"

// cluster is what is kept of a Cluster.
type cluster struct {
	hubObject

	initialized bool
}

// trimCluster keeps of a Cluster what a spec is made of.
func trimCluster(u *unstructured.Unstructured) *cluster {
	c := &cluster{hubObject: hubObjectOf(u), initialized: initialized(u)}
	if paused, _, err := unstructured.NestedBool(u.Object, "spec", "paused"); paused || err != nil {
		c.hold.Paused, c.hold.PausedBy = true, managerOf(u, "paused")
	} else if annotations.HasPaused(u) {
		c.hold.Paused, c.hold.PausedBy = true, managerOf(u, clusterv1.PausedAnnotation)
	}
	return c
}

// member implements description. Without a right to read Secrets the member says so.
func (c *cluster) member(all secrets) described {
	s := c.spec(clusterv1.ClusterKind)
	name := secret.Name(c.Name, secret.Kubeconfig)
	read, _ := all.get(c.Namespace, name)
	s.Kubeconfig, s.Credentials = read[secret.KubeconfigDataName], "Secret "+c.Namespace+"/"+name
	s.Uninitialized = !c.initialized
	if !c.initialized {
		refuse(&s, connection.NotInitialized, "the Cluster's control plane is not initialized")
	}
	if len(s.Kubeconfig) == 0 {
		all.refuse(&s, c.Namespace, "Secret %s with key %q and type %s not found", name, secret.KubeconfigDataName, clusterv1.ClusterSecretType)
	}
	if own, exists := all.get(c.Namespace, c.Name+writeSuffix); exists {
		s.Write = &clusterinformers.WriteAccess{Credentials: "Secret " + c.Namespace + "/" + c.Name + writeSuffix, Kubeconfig: own[secret.KubeconfigDataName]}
	}
	return described{Spec: s}
}

// initialized reads a Cluster's status by the contract of its version.
func initialized(u *unstructured.Unstructured) bool {
	if u.GroupVersionKind().GroupVersion() != v1beta1 {
		yes, _, _ := unstructured.NestedBool(u.Object, "status", "initialization", "controlPlaneInitialized")
		return yes
	}
	if ready, _, _ := unstructured.NestedBool(u.Object, "status", "controlPlaneReady"); ready {
		return true
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == string(clusterv1.ControlPlaneInitializedV1Beta1Condition) && m["status"] == string(corev1.ConditionTrue)
	})
}

// keepKubeconfig keeps of a Secret the kubeconfig, if it is named like one that holds one.
func keepKubeconfig(s *corev1.Secret) map[string][]byte {
	if strings.HasSuffix(s.Name, secret.Name("", secret.Kubeconfig)) || strings.HasSuffix(s.Name, writeSuffix) {
		return keepKeys(s.Data, secret.KubeconfigDataName)
	}
	return nil
}

// secretsOfType selects the Secrets of a type.
func secretsOfType(t corev1.SecretType) func(*metav1.ListOptions) {
	selector := fields.OneTermEqualSelector("type", string(t)).String()
	return func(o *metav1.ListOptions) { o.FieldSelector = selector }
}
