package hubside

import (
	"context"
	"log/slog"
	"sync"
	"time"

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

// memberInformers follow the Members of some namespaces. They tell the registry whose agents may connect. A namespace that cannot be
// read keeps the agents of no other one out.
type memberInformers []memberInformer

type memberInformer struct {
	cache.SharedIndexInformer
	namespace string
	told      cache.InformerSynced // the registry knows what was listed first
}

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
		told, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
		all = append(all, memberInformer{i, namespace, told.HasSynced})
	}
	registry.ready = all.known
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

// trimMember keeps of a Member what is needed here. It never fails, since a Member that is not seen to go lets its agent
// stay, and one that is not listed hides all others: what else there is may be of any schema.
func trimMember(obj any) (any, error) {
	u, is := obj.(*unstructured.Unstructured)
	if !is {
		return obj, nil // it was trimmed before
	}
	return trimmed(u), nil
}

func trimmed(u *unstructured.Unstructured) *v1alpha1.Member {
	m := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), DeletionTimestamp: u.GetDeletionTimestamp(),
	}}
	if spec, is := u.Object["spec"].(map[string]any); is {
		if agent, is := spec["agent"].(map[string]any); is && agent != nil {
			m.Spec.Agent = &v1alpha1.MemberAgent{}
		}
	}
	status, _ := u.Object["status"].(map[string]any)
	if connected, is := status["connected"].(bool); is {
		m.Status.Connected = &connected
	}
	m.Status.AgentVersion, _ = status["agentVersion"].(string)
	m.Status.Process, _ = status["process"].(string)
	m.Status.LastContactTime, m.Status.CertificateExpires = timeOf(status["lastContactTime"]), timeOf(status["certificateExpires"])
	return m
}

// timeOf returns nil for what is no time that Go reads. The API server takes more.
func timeOf(value any) *metav1.Time {
	text, _ := value.(string)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil
	}
	return &metav1.Time{Time: at}
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

// synced waits until all Members are known.
func (all memberInformers) synced(ctx context.Context) {
	for _, i := range all {
		cache.WaitForCacheSync(ctx.Done(), i.told)
	}
}

// known reports whether the Members of a namespace are known, also where none of it are followed.
func (all memberInformers) known(namespace string) bool {
	for _, i := range all {
		if i.namespace == namespace || i.namespace == metav1.NamespaceAll {
			return i.told()
		}
	}
	return true
}

// each calls f with each Member.
func (all memberInformers) each(f func(*v1alpha1.Member)) {
	for _, i := range all {
		for _, obj := range i.GetStore().List() {
			if m, is := obj.(*v1alpha1.Member); is {
				f(m)
			}
		}
	}
}

// now returns a Member as it is now, or nil.
func (all memberInformers) now(m *v1alpha1.Member) *v1alpha1.Member {
	for _, i := range all {
		if obj, has, err := i.GetStore().GetByKey(m.Namespace + "/" + m.Name); err == nil && has {
			if now, is := obj.(*v1alpha1.Member); is && now.UID == m.UID {
				return now
			}
		}
	}
	return nil
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
		DeleteFunc: func(any) { s.reload.Fire() }, // it is created again
	})
	return i, err
}
