package source

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/secret"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/clusterfacts"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

var secretSelector = fields.OneTermEqualSelector("type", string(clusterv1.ClusterSecretType)).String()

// namespaceInformers is one namespace of the hub, or all of them, with an informer on its
// Clusters and one on their Secrets. One namespace does not wait for
// another.
type namespaceInformers struct {
	namespace         string // "" for all
	clusters, secrets *hubInformer
}

type namespaceOptions struct {
	clusters  dynamic.ResourceInterface
	secrets   corev1client.SecretInterface
	client    any // of the clusters
	log       *slog.Logger
	trigger   func() // called at every change
	notServed func() // called when Clusters are not served
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

func newNamespaceInformers(namespace string, o namespaceOptions) (*namespaceInformers, error) {
	feedOf := func(what string, lw *cache.ListWatch, client any, example runtime.Object, transform cache.TransformFunc, gone func()) (*hubInformer, error) {
		f := &hubInformer{
			SharedIndexInformer: cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), example, 0, cache.Indexers{}),
			log:                 o.log.With("resource", what, "namespace", cmp.Or(namespace, "(all)")), trigger: o.trigger, notServed: gone,
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
	p := &namespaceInformers{namespace: namespace}
	var err error
	p.clusters, err = feedOf("clusters", &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return o.clusters.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return o.clusters.Watch(ctx, opts)
		},
	}, o.client, &unstructured.Unstructured{}, trimCluster, o.notServed)
	if err != nil {
		return nil, err
	}
	p.secrets, err = feedOf("secrets", &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = secretSelector
			return o.secrets.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = secretSelector
			return o.secrets.Watch(ctx, opts)
		},
	}, o.client, &corev1.Secret{}, trimSecret, func() {})
	return p, err
}

// start runs the informers until ctx is done.
func (p *namespaceInformers) start(ctx context.Context, running *sync.WaitGroup) {
	for _, f := range []*hubInformer{p.clusters, p.secrets} {
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

// specs returns the members of a namespace.
func (p *namespaceInformers) specs() ([]clusterinformers.Spec, namespaceState) {
	if p.clusters.isForbidden() {
		return nil, namespaceForbidden
	}
	forbidden := p.secrets.isForbidden()
	if !p.clusters.HasSynced() || !p.secrets.HasSynced() && !forbidden {
		return nil, namespaceUnknown
	}
	specs := []clusterinformers.Spec{}
	for _, obj := range p.clusters.GetStore().List() {
		c, ok := obj.(*cluster)
		if !ok {
			continue
		}
		kubeconfig, _ := p.kubeconfig(c.Namespace, secret.Name(c.Name, secret.Kubeconfig))
		s := c.spec(kubeconfig, forbidden)
		if own, exists := p.kubeconfig(c.Namespace, c.Name+writeSuffix); exists {
			s.Write = &clusterinformers.WriteAccess{Credentials: "Secret " + c.Namespace + "/" + c.Name + writeSuffix, Kubeconfig: own}
		}
		specs = append(specs, s)
	}
	return specs, namespaceKnown
}

// writeSuffix ends the name of the Secret with the kubeconfig that a member is written with,
// after that of its Cluster. Members without one are written with that of Cluster API, which
// may do everything.
const writeSuffix = "-federator"

// kubeconfig returns the kubeconfig in a Secret, and whether there is such a Secret.
func (p *namespaceInformers) kubeconfig(namespace, name string) (value []byte, exists bool) {
	s, exists, err := p.secrets.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil, false
	}
	kept, ok := s.(*corev1.Secret)
	if !ok {
		return nil, false
	}
	return kept.Data[secret.KubeconfigDataName], true
}

// cluster is what is kept of a Cluster.
type cluster struct {
	metav1.ObjectMeta
	hold        connection.Hold
	facts       aggregate.Cluster
	initialized bool
}

// spec describes the member. Without a right to read Secrets it says so.
func (c *cluster) spec(kubeconfig []byte, unreadable bool) clusterinformers.Spec {
	s := clusterinformers.Spec{
		Name: c.Namespace + "/" + c.Name, UID: string(c.UID), Kubeconfig: kubeconfig,
		Credentials:   "Secret " + c.Namespace + "/" + secret.Name(c.Name, secret.Kubeconfig),
		Uninitialized: !c.initialized, Hold: c.hold, Cluster: c.facts,
	}
	for k, v := range c.Labels {
		s.Labels = append(s.Labels, aggregate.Label{Key: k, Value: v})
	}
	slices.SortFunc(s.Labels, func(a, b aggregate.Label) int { return strings.Compare(a.Key, b.Key) })
	switch {
	case c.DeletionTimestamp != nil:
		s.Refused = connection.Refuse(connection.Deleting, "the Cluster is being deleted")
	case !c.initialized:
		s.Refused = connection.Refuse(connection.NotInitialized, "the Cluster's control plane is not initialized")
	case len(kubeconfig) == 0 && unreadable:
		s.Refused = connection.Refuse(connection.NoKubeconfig, "reading Secrets in namespace %s is forbidden", c.Namespace)
	case len(kubeconfig) == 0:
		s.Refused = connection.Refuse(connection.NoKubeconfig, "Secret %s with key %q and type %s not found", secret.Name(c.Name, secret.Kubeconfig), secret.KubeconfigDataName, clusterv1.ClusterSecretType)
	}
	return s
}

// trimCluster keeps of a Cluster what a spec is made of. It may be given what
// it returned before.
func trimCluster(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	return &cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			Labels: u.GetLabels(), DeletionTimestamp: u.GetDeletionTimestamp(),
		},
		hold: holdOf(u), facts: clusterfacts.Of(u), initialized: initialized(u),
	}, nil
}

// holdOf reads why nothing is to be written to a Cluster's member.
func holdOf(u *unstructured.Unstructured) connection.Hold {
	var hold connection.Hold
	if paused, _, err := unstructured.NestedBool(u.Object, "spec", "paused"); paused || err != nil {
		hold.Paused, hold.PausedBy = true, managerOf(u, "paused")
	} else if annotations.HasPaused(u) {
		hold.Paused, hold.PausedBy = true, managerOf(u, clusterv1.PausedAnnotation)
	}
	if until, ok := u.GetAnnotations()[api.FreezeKey]; ok {
		until = message.Clip(until)
		hold.Freeze, hold.FrozenBy = &until, managerOf(u, api.FreezeKey)
	}
	return hold
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

// trimSecret keeps of a Secret its name and, if it is named like one that holds
// a kubeconfig, that. It may be given what it returned before.
func trimSecret(obj any) (any, error) {
	s, ok := obj.(*corev1.Secret)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
	}}
	if strings.HasSuffix(s.Name, secret.Name("", secret.Kubeconfig)) || strings.HasSuffix(s.Name, writeSuffix) {
		kept.Data = map[string][]byte{secret.KubeconfigDataName: bytes.Clone(s.Data[secret.KubeconfigDataName])}
	}
	return kept, nil
}
