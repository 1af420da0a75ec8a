package source

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
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
	log       *slog.Logger

	// made are the members that were made of objects, by key. A change of one object makes one
	// again, and not all. One goroutine uses it.
	made map[string]*madeMember
}

// madeMember is a member, and what it was made of.
type madeMember struct {
	found

	of         description
	used       []usedSecret
	unreadable bool
	loads      int // of files
}

// current reports whether the member would be made the same again.
func (m *madeMember) current(of description, with *secrets, loads int) bool {
	if m == nil || m.of != of || m.loads != loads || m.unreadable != with.unreadable {
		return false
	}
	for _, u := range m.used {
		if with.of(u.key) != u.secret {
			return false
		}
	}
	return true
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
	p := &namespaceInformers{namespace: namespace, log: o.log, made: map[string]*madeMember{}}
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
			return trimmed(u, m.trim), nil
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

// members returns the members of a namespace, by the objects that describe them. loads is how often
// files were loaded that they depend on.
func (p *namespaceInformers) members(loads int) ([]found, namespaceState) {
	if p.objects.isForbidden() {
		return nil, namespaceForbidden
	}
	var with secrets
	if p.secrets != nil {
		with = secrets{Store: p.secrets.GetStore(), unreadable: p.secrets.isForbidden()}
	}
	if !p.objects.HasSynced() || p.secrets != nil && !p.secrets.HasSynced() && !with.unreadable {
		return nil, namespaceUnknown
	}
	var list []description
	for _, obj := range p.objects.GetStore().List() {
		if d, ok := obj.(description); ok {
			list = append(list, d)
		}
	}
	return p.membersOf(list, with, loads), namespaceKnown
}

// membersOf returns the members that objects describe. What has not changed is not made again.
func (p *namespaceInformers) membersOf(list []description, with secrets, loads int) []found {
	out, made := make([]found, 0, len(list)), make(map[string]*madeMember, len(list))
	for _, d := range list {
		key := d.GetNamespace() + "/" + d.GetName()
		m := p.made[key]
		if !m.current(d, &with, loads) {
			m = p.make(d, with, loads)
		}
		made[key] = m
		out = append(out, m.found)
	}
	p.made = made
	return out
}

// make makes a member of an object. One that makes it panic is refused, and harms no other.
func (p *namespaceInformers) make(d description, with secrets, loads int) (m *madeMember) {
	with.used = new([]usedSecret)
	m = &madeMember{of: d, unreadable: with.unreadable, loads: loads}
	m.created, m.namespace, m.name = d.GetCreationTimestamp().Time, d.GetNamespace(), d.GetName()
	defer func() {
		if v := recover(); v != nil {
			p.log.Error("an object that describes a member is not understood", "name", m.namespace+"/"+m.name, "error", v, "stack", string(debug.Stack()))
			m.described = described{Spec: clusterinformers.Spec{
				Name: m.namespace + "/" + m.name, UID: string(d.GetUID()), Refused: connection.Refuse(connection.Panicked, "the object that describes it is not understood: %v", v),
			}}
		}
		m.used = *with.used
	}()
	m.described = d.member(with)
	return m
}

// trimmed keeps of an object what describes its member. Of one that makes this panic it keeps what
// identifies it.
func trimmed(u *unstructured.Unstructured, trim func(*unstructured.Unstructured) description) (d description) {
	defer func() {
		if v := recover(); v != nil {
			d = &misunderstood{ObjectMeta: metav1.ObjectMeta{
				Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp(),
			}, why: v}
		}
	}()
	return trim(u)
}

// misunderstood is an object that nothing is understood of.
type misunderstood struct {
	metav1.ObjectMeta

	why any
}

// member implements description.
func (m *misunderstood) member(secrets) described { panic(m.why) }

// secrets are those with the credentials of members.
type secrets struct {
	cache.Store
	unreadable bool          // nothing is known of them, as they may not be read
	used       *[]usedSecret // that were asked for; nil: nobody asks
}

// usedSecret is a Secret that a member was made with, nil where there was none.
type usedSecret struct {
	key    string
	secret *corev1.Secret
}

// get returns what is kept of a Secret, and whether there is such a Secret.
func (s secrets) get(namespace, name string) (data map[string][]byte, exists bool) {
	key := namespace + "/" + name
	kept := s.of(key)
	if s.used != nil {
		*s.used = append(*s.used, usedSecret{key, kept})
	}
	if kept == nil {
		return nil, false
	}
	return kept.Data, true
}

func (s *secrets) of(key string) *corev1.Secret {
	obj, exists, err := s.GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	kept, _ := obj.(*corev1.Secret)
	return kept
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
