package externaldocs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policysource/externaldata"
)

// ConfigMaps are those of federator's namespace that may be documents.
type ConfigMaps struct {
	client    kubernetes.Interface
	namespace string
	informer  cache.SharedIndexInformer
}

// NewConfigMaps returns the ConfigMaps of a namespace. changed is called with the name of each that may have changed; it must not
// block. Nothing is watched before Run.
func NewConfigMaps(config *rest.Config, namespace string, changed func(name string)) (*ConfigMaps, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	c := &ConfigMaps{client: client, namespace: namespace}
	selector := labels.SelectorFromSet(labels.Set{v1alpha1.ExternalDataLabel: "true"}).String()
	c.informer = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector })).Core().V1().ConfigMaps().Informer()
	if err := c.informer.SetTransform(withoutData); err != nil {
		return nil, err
	}
	tell := func(o any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			_, name, _ = cache.SplitMetaNamespaceKey(name)
			changed(name)
		}
	}
	_, err = c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell})
	return c, err
}

// withoutData leaves out what is not to be held twice.
func withoutData(o any) (any, error) {
	if c, ok := o.(*corev1.ConfigMap); ok {
		c.Data, c.BinaryData, c.ManagedFields, c.Annotations = nil, nil, nil, nil
	}
	return o, nil
}

// Run watches until the context ends.
func (c *ConfigMaps) Run(ctx context.Context) error {
	c.informer.RunWithContext(ctx)
	return context.Cause(ctx)
}

// Read returns the data of a ConfigMap, and its resourceVersion. The error is externaldata.ErrNotFound if there is none, or it has
// not got the label.
func (c *ConfigMaps) Read(ctx context.Context, name string) (data map[string]string, version string, err error) {
	got, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", fmt.Errorf("ConfigMap %s/%s: %w", c.namespace, name, externaldata.ErrNotFound)
	case err != nil:
		return nil, "", fmt.Errorf("ConfigMap %s/%s: %w", c.namespace, name, err)
	case got.Labels[v1alpha1.ExternalDataLabel] != "true":
		return nil, "", fmt.Errorf("ConfigMap %s/%s has no label %s: \"true\": %w", c.namespace, name, v1alpha1.ExternalDataLabel, externaldata.ErrNotFound)
	}
	return got.Data, got.ResourceVersion, nil
}
