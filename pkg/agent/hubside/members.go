package hubside

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/agent/internal/identity"
)

// memberInformers follow the Members of some namespaces. They tell the registry whose agents may connect.
type memberInformers []cache.SharedIndexInformer

func newMemberInformers(client dynamic.Interface, namespaces []string, registry *registry, log *slog.Logger) (memberInformers, error) {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var all memberInformers
	for _, namespace := range namespaces {
		members := client.Resource(v1alpha1.Resource(v1alpha1.Members)).Namespace(namespace)
		i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return members.List(ctx, opts)
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return members.Watch(ctx, opts)
			},
		}, client), &unstructured.Unstructured{}, 0, cache.Indexers{})
		if err := i.SetTransform(trimMember); err != nil {
			return nil, err
		}
		if err := i.SetWatchErrorHandlerWithContext(logWatchErrors(log.With("resource", v1alpha1.Members))); err != nil {
			return nil, err
		}
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { registry.follow(nil, obj) },
			UpdateFunc: func(old, obj any) {
				registry.follow(old, obj)
			},
			DeleteFunc: func(obj any) {
				if gone, is := obj.(cache.DeletedFinalStateUnknown); is {
					obj = gone.Obj
				}
				registry.follow(obj, nil)
			},
		})
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// logWatchErrors logs what an informer meets, which tries again.
func logWatchErrors(log *slog.Logger) cache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			log.Warn("list or watch on the hub failed, retrying", "error", err)
		}
	}
}

// trimMember keeps of a Member what is needed here.
func trimMember(obj any) (any, error) {
	u, is := obj.(*unstructured.Unstructured)
	if !is {
		return obj, nil // it was trimmed before
	}
	m := &v1alpha1.Member{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, m); err != nil {
		return nil, fmt.Errorf("Member %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	m.ObjectMeta = metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp}
	return m, nil
}

// mayConnect returns the identity of a Member whose agent may connect.
func mayConnect(obj any) (identity.Identity, bool) {
	m, is := obj.(*v1alpha1.Member)
	if !is || m.Spec.Agent == nil || m.DeletionTimestamp != nil {
		return identity.Identity{}, false
	}
	return identity.Identity{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}, true
}

// follow takes a change of a Member. An old one with another UID was another Member.
func (r *registry) follow(old, now any) {
	was, did := mayConnect(old)
	is, may := mayConnect(now)
	if did && (!may || was != is) {
		r.forbid(was.UID)
	}
	if may {
		r.allow(is)
	}
}

// run runs the informers until ctx is done.
func (all memberInformers) run(ctx context.Context, running *sync.WaitGroup) {
	for _, i := range all {
		running.Go(func() { i.RunWithContext(ctx) })
	}
}

// synced waits until all Members are known. It reports whether they are.
func (all memberInformers) synced(ctx context.Context) bool {
	for _, i := range all {
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return false
		}
	}
	return true
}

// each calls f with each Member whose agent may connect.
func (all memberInformers) each(f func(*v1alpha1.Member)) {
	for _, i := range all {
		for _, obj := range i.GetStore().List() {
			if _, may := mayConnect(obj); may {
				f(obj.(*v1alpha1.Member))
			}
		}
	}
}

// newSecretInformer follows one Secret.
func (s *Server) newSecretInformer(name string, changed func(*corev1.Secret)) (cache.SharedIndexInformer, error) {
	secrets := s.client.CoreV1().Secrets(s.o.Namespace)
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = selector
			return secrets.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = selector
			return secrets.Watch(ctx, opts)
		},
	}, s.client), &corev1.Secret{}, 0, cache.Indexers{})
	if err := i.SetWatchErrorHandlerWithContext(logWatchErrors(s.o.Logger.With("resource", "secrets", "name", name))); err != nil {
		return nil, err
	}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(obj.(*corev1.Secret)) },
		UpdateFunc: func(_, obj any) { changed(obj.(*corev1.Secret)) },
	})
	return i, err
}
