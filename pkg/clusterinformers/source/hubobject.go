package source

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/clusterfacts"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// hubObject is what is kept of any object that describes a member.
type hubObject struct {
	metav1.ObjectMeta

	hold  connection.Hold
	facts aggregate.Cluster
}

// hubObjectOf keeps of an object what identifies it, its labels, and what its annotations say.
func hubObjectOf(u *unstructured.Unstructured) hubObject {
	o := hubObject{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			Labels: u.GetLabels(), DeletionTimestamp: u.GetDeletionTimestamp(), CreationTimestamp: u.GetCreationTimestamp(),
		},
		facts: clusterfacts.Of(u),
	}
	if until, ok := u.GetAnnotations()[api.FreezeKey]; ok {
		until = message.Clip(until)
		o.hold.Freeze, o.hold.FrozenBy = &until, managerOf(u, api.FreezeKey)
	}
	return o
}

// spec describes the member, but for its access. kind is what the object is called.
func (o *hubObject) spec(kind string) clusterinformers.Spec {
	s := clusterinformers.Spec{Name: o.Namespace + "/" + o.Name, UID: string(o.UID), Hold: o.hold, Cluster: o.facts}
	for k, v := range o.Labels {
		s.Labels = append(s.Labels, aggregate.Label{Key: k, Value: v})
	}
	slices.SortFunc(s.Labels, func(a, b aggregate.Label) int { return strings.Compare(a.Key, b.Key) })
	if o.DeletionTimestamp != nil {
		s.Refused = connection.Refuse(connection.Deleting, "the %s is being deleted", kind)
	}
	return s
}

// refuse says why the member is not reached, unless something else does already.
func refuse(s *clusterinformers.Spec, reason connection.Reason, format string, args ...any) {
	if s.Refused == nil {
		s.Refused = connection.Refuse(reason, format, args...)
	}
}

// managerOf returns the field manager that wrote a field last, "" where nobody says so. Clients
// choose their names: it proves nothing.
func managerOf(u *unstructured.Unstructured, field string) string {
	var newest metav1.ManagedFieldsEntry
	for _, m := range u.GetManagedFields() {
		if m.FieldsV1 == nil || !strings.Contains(m.FieldsV1.GetRawString(), `"f:`+field+`":`) {
			continue
		}
		if newest.Manager == "" || m.Time != nil && newest.Time != nil && newest.Time.Before(m.Time) {
			newest = m
		}
	}
	return message.Clip(newest.Manager)
}

// writeKubeconfig writes down how a cluster is reached, as a kubeconfig for the checks that all
// go through.
func writeKubeconfig(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) ([]byte, *connection.Refusal) {
	const name = "member"
	config := clientcmdapi.NewConfig()
	config.Clusters[name], config.AuthInfos[name] = cluster, user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil { // which may repeat what is secret
		return nil, connection.Refuse(connection.InvalidKubeconfig, "it cannot be written as a kubeconfig")
	}
	return data, nil
}
