package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Selection selects objects of a kind. The zero value selects all.
type Selection struct {
	Namespace string
	// Labels may also select members: by federator.dev/member,
	// federator.dev/member-namespace, federator.dev/member-name, and a Cluster's label P/N
	// as P.member.federator.dev/N.
	Labels string
	Fields string
}

// ListWatch lists and watches objects of any kind as unstructured ones. The client must be
// configured for /fleet, as in the context "fleet" that "federator kubeconfig" writes.
func ListWatch(client dynamic.Interface, resource schema.GroupVersionResource, s Selection) cache.ListerWatcher {
	objects := client.Resource(resource).Namespace(s.Namespace)
	narrowed := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = s.Labels, s.Fields
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, narrowed(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, narrowed(o))
		},
	}
}
