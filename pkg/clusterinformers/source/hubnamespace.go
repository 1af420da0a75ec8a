package source

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// namespaceInformers is one namespace of the hub, or all of them, with an informer on its
// objects and, where there are any, one on their Secrets. One namespace does not wait for
// another.
type namespaceInformers struct {
	namespace string // "" for all
	objects   *hubInformer
	secrets   *hubInformer // nil: there are none
}

type namespaceOptions struct {
	objects   dynamic.ResourceInterface
	secrets   corev1client.SecretInterface
	client    any // of the objects
	log       *slog.Logger
	trigger   func() // called at every change
	notServed func() // called when the objects are not served
}

// hubInformer is an informer and what is in its way.
type hubInformer struct {
	cache.SharedIndexInformer
	log       *slog.Logger
	trigger   func()
	notServed func()

	mu           sync.Mutex
	failing      bool                // since something last came
	loggedReason metav1.StatusReason // that was logged last
	forbidden    bool
}

func newNamespaceInformers(namespace string, m *memberObjects, o namespaceOptions) (*namespaceInformers, error) {
	p := &namespaceInformers{namespace: namespace}
	narrowed := func(opts metav1.ListOptions) metav1.ListOptions {
		opts.LabelSelector = m.labels
		return opts
	}
	var err error
	p.objects, err = newHubInformer(namespace, m.resource, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return o.objects.List(ctx, narrowed(opts))
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return o.objects.Watch(ctx, narrowed(opts))
		},
	}, &unstructured.Unstructured{}, func(obj any) (any, error) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			return m.trim(u), nil
		}
		return obj, nil // what it has returned
	}, o.notServed, o)
	if err != nil || m.selectSecrets == nil {
		return p, err
	}
	p.secrets, err = newHubInformer(namespace, "secrets", &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			m.selectSecrets(&opts)
			return o.secrets.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			m.selectSecrets(&opts)
			return o.secrets.Watch(ctx, opts)
		},
	}, &corev1.Secret{}, trimSecret(m.keepOf), func() {}, o)
	return p, err
}

func newHubInformer(namespace, resource string, lw *cache.ListWatch, example runtime.Object, transform cache.TransformFunc, gone func(), o namespaceOptions) (*hubInformer, error) {
	f := &hubInformer{
		SharedIndexInformer: cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, o.client), example, 0, cache.Indexers{}),
		log:                 o.log.With("resource", resource, "namespace", cmp.Or(namespace, "(all)")), trigger: o.trigger, notServed: gone,
	}
	if err := f.SetTransform(transform); err != nil {
		return nil, err
	}
	if err := f.SetWatchErrorHandlerWithContext(f.watchFailed); err != nil {
		return nil, err
	}
	_, err := f.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f.received() },
		UpdateFunc: func(any, any) { f.received() },
		DeleteFunc: func(any) { f.received() },
	})
	return f, err
}

// start runs the informers until ctx is done.
func (p *namespaceInformers) start(ctx context.Context, running *sync.WaitGroup) {
	for _, f := range []*hubInformer{p.objects, p.secrets} {
		if f == nil {
			continue
		}
		running.Go(func() { f.RunWithContext(ctx) })
		running.Go(func() {
			select {
			case <-f.HasSyncedChecker().Done(): // an empty list makes no event
				f.received()
			case <-ctx.Done():
			}
		})
	}
}

// received is called when the hub lets us hear something.
func (f *hubInformer) received() {
	f.mu.Lock()
	f.failing, f.forbidden = false, false
	f.mu.Unlock()
	f.trigger()
}

// watchFailed is called by the informer, which tries again, with growing delays.
func (f *hubInformer) watchFailed(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // an old watch: the informer lists again
	}
	if apierrors.IsNotFound(err) {
		f.notServed()
	}
	reason := apierrors.ReasonForError(err)
	f.mu.Lock()
	first := !f.failing || f.loggedReason != reason
	f.failing, f.loggedReason = true, reason
	f.forbidden = f.forbidden || apierrors.IsForbidden(err)
	f.mu.Unlock()
	if first {
		f.log.Warn("list or watch on the hub failed, retrying", "error", message.Clip(err.Error()))
	}
	f.trigger()
}

// isForbidden reports whether nothing is known because it may not be read.
func (f *hubInformer) isForbidden() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forbidden && !f.HasSynced()
}

// namespaceState is what is known of a namespace.
type namespaceState int

const (
	namespaceUnknown namespaceState = iota
	namespaceKnown
	namespaceForbidden
)

// members returns the members of a namespace, by the objects that describe them.
func (p *namespaceInformers) members() ([]found, namespaceState) {
	if p.objects.isForbidden() {
		return nil, namespaceForbidden
	}
	var with secrets
	if p.secrets != nil {
		with = secrets{p.secrets.GetStore(), p.secrets.isForbidden()}
	}
	if !p.objects.HasSynced() || p.secrets != nil && !p.secrets.HasSynced() && !with.unreadable {
		return nil, namespaceUnknown
	}
	out := []found{}
	for _, obj := range p.objects.GetStore().List() {
		if d, ok := obj.(description); ok {
			out = append(out, found{d.member(with), d.GetCreationTimestamp().Time, d.GetNamespace(), d.GetName()})
		}
	}
	return out, namespaceKnown
}

// secrets are those with the credentials of members.
type secrets struct {
	cache.Store
	unreadable bool // nothing is known of them, as they may not be read
}

// get returns what is kept of a Secret, and whether there is such a Secret.
func (s secrets) get(namespace, name string) (data map[string][]byte, exists bool) {
	obj, exists, err := s.GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil, false
	}
	kept, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, false
	}
	return kept.Data, true
}

// refuse says that a member's credentials are missing or, where they may not be read, that.
func (s secrets) refuse(spec *clusterinformers.Spec, namespace, format string, args ...any) {
	if s.unreadable {
		refuse(spec, connection.NoKubeconfig, "reading Secrets in namespace %s is forbidden", namespace)
		return
	}
	refuse(spec, connection.NoKubeconfig, format, args...)
}

// trimSecret keeps of a Secret what identifies it, and what keep says.
func trimSecret(keep func(*corev1.Secret) map[string][]byte) cache.TransformFunc {
	return func(obj any) (any, error) {
		s, ok := obj.(*corev1.Secret)
		if !ok {
			return obj, nil
		}
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
		}, Data: keep(s)}, nil
	}
}

// keepKeys returns the values of some keys, copied out of all that came with them.
func keepKeys(data map[string][]byte, keys ...string) map[string][]byte {
	kept := make(map[string][]byte, len(keys))
	for _, key := range keys {
		if value, ok := data[key]; ok {
			kept[key] = bytes.Clone(value)
		}
	}
	return kept
}
