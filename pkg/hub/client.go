package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api/v1alpha1"
)

// client reads and writes federator's kinds on the hub.
type client struct {
	rest  rest.Interface
	codec runtime.ParameterCodec
}

func newClient(config *rest.Config) (*client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	gv := v1alpha1.SchemeGroupVersion()
	c.GroupVersion, c.APIPath = &gv, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	r, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return &client{rest: r, codec: runtime.NewParameterCodec(scheme)}, nil
}

// NewRESTClient returns a client of federator's kinds on the hub.
func NewRESTClient(config *rest.Config) (rest.Interface, error) {
	c, err := newClient(config)
	if err != nil {
		return nil, err
	}
	return c.rest, nil
}

// informer returns an informer of all objects of a resource.
func (c *client) informer(resource string, list, example runtime.Object) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			into := list.DeepCopyObject()
			return into, c.rest.Get().Resource(resource).VersionedParams(&opts, c.codec).Do(ctx).Into(into)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return c.rest.Get().Resource(resource).VersionedParams(&opts, c.codec).Watch(ctx)
		},
	}, example, 0, cache.Indexers{})
}

// listed returns what an informer has, by name.
func listed[T metav1.Object](of cache.SharedIndexInformer) []T {
	var out []T
	for _, o := range of.GetStore().List() {
		if x, ok := o.(T); ok {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}
