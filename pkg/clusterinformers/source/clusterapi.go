// Package source has the sources of members: the Clusters of a Cluster API management
// cluster ([NewClusterAPI]), contexts of kubeconfigs ([NewContexts]) and the hub itself
// ([NewHub]).
package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
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

type clusterAPI struct {
	ClusterAPIOptions

	// lastKnown is what was last known of each namespace. It outlives the informers,
	// so that members are not removed while these restart. One goroutine uses it.
	lastKnown map[string][]clusterinformers.Spec
}

// NewClusterAPI returns the source, or what is wrong with the options.
func NewClusterAPI(o ClusterAPIOptions) (clusterinformers.Source, error) {
	if o.Logger == nil {
		return nil, errors.New("cluster API: Logger is required")
	}
	if o.Config == nil {
		return nil, errors.New("cluster API: Config is required")
	}
	o.Namespaces = slices.Clone(o.Namespaces)
	slices.Sort(o.Namespaces)
	for i, n := range o.Namespaces {
		if n == "" {
			return nil, errors.New("cluster API: a namespace must have a name; an empty list means every namespace")
		}
		if i > 0 && n == o.Namespaces[i-1] {
			return nil, fmt.Errorf("cluster API: namespace %q is named twice", n)
		}
	}
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{""}
	}
	o.Config = rest.CopyConfig(o.Config)
	o.Config.QPS = -1
	o.Config.WarningHandler = rest.NoWarnings{} // that a version of Cluster is deprecated is known
	if o.Config.UserAgent == "" {
		o.Config.UserAgent = memberclient.UserAgent
	}
	return &clusterAPI{ClusterAPIOptions: o}, nil
}

const (
	coalescePeriod = 20 * time.Millisecond // changes within it are published together
	minRetryDelay  = time.Second
	maxRetryDelay  = 15 * time.Second
	hubTimeout     = 10 * time.Second // for one request that is not a list or watch
)

const clustersResource = "clusters"

// v1beta1 is the older version, whose own package is deprecated.
var v1beta1 = schema.GroupVersion{Group: clusterv1.GroupVersion.Group, Version: "v1beta1"}

// clusterVersions are the versions of Cluster that are understood, the preferred one
// first. Each is also a contract of Cluster API: it says in its own way that a control
// plane is initialized.
var clusterVersions = []schema.GroupVersion{clusterv1.GroupVersion, v1beta1}

// errVersionNotServed ends the informers when the version of Cluster that they follow
// is no longer served.
var errVersionNotServed = errors.New("this version of Cluster is no longer served")

// Run implements Source. It waits for Cluster API to be installed, and follows
// the hub to another version of Cluster when it no longer serves the one in
// use.
func (s *clusterAPI) Run(ctx context.Context, set func([]clusterinformers.Spec)) error {
	client, end, err := memberclient.NewHubHTTPClient(s.Config)
	if err != nil {
		return fmt.Errorf("cluster API: %w", err)
	}
	defer end()
	dyn, err := dynamic.NewForConfigAndClient(s.Config, client)
	if err != nil {
		return fmt.Errorf("cluster API: %w", err)
	}
	typed, err := kubernetes.NewForConfigAndClient(s.Config, client)
	if err != nil {
		return fmt.Errorf("cluster API: %w", err)
	}
	s.lastKnown = map[string][]clusterinformers.Spec{}
	var last []clusterinformers.Spec
	published := false
	publish := func(specs []clusterinformers.Spec) {
		if !published || !reflect.DeepEqual(specs, last) {
			published, last = true, specs
			set(specs)
		}
	}
	for ctx.Err() == nil {
		version, err := s.awaitVersion(ctx, client)
		if err != nil {
			break // ctx is done
		}
		if err := s.watchClusters(ctx, version, dyn, typed, publish); errors.Is(err, errVersionNotServed) {
			s.Logger.Info("Cluster API version is no longer served", "version", version.Version)
			_ = sleep.For(ctx, minRetryDelay) // the loop sees that ctx is done
		}
	}
	return nil
}

// awaitVersion returns the version of Cluster to watch once the hub serves one. Its
// error is the context's.
func (s *clusterAPI) awaitVersion(ctx context.Context, client *http.Client) (schema.GroupVersion, error) {
	lastErr := ""
	for delay := minRetryDelay; ; delay = min(2*delay, maxRetryDelay) {
		version, err := s.servedVersion(ctx, client)
		if err == nil {
			return version, nil
		}
		if ctx.Err() != nil {
			return schema.GroupVersion{}, ctx.Err()
		}
		if m := message.Clip(err.Error()); m != lastErr {
			lastErr = m
			s.Logger.Warn("Cluster API not found on the hub, retrying", "error", m)
		}
		if err := sleep.For(ctx, delay); err != nil {
			return schema.GroupVersion{}, err
		}
	}
}

func (s *clusterAPI) servedVersion(ctx context.Context, client *http.Client) (schema.GroupVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	withContext := *client
	withContext.Transport = memberclient.ContextTransport{Context: ctx, Base: client.Transport}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(s.Config, &withContext)
	if err != nil {
		return schema.GroupVersion{}, err
	}
	for _, version := range clusterVersions {
		list, err := d.ServerResourcesForGroupVersion(version.String())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return schema.GroupVersion{}, err
		}
		for _, r := range list.APIResources {
			if r.Name == clustersResource {
				return version, nil
			}
		}
	}
	return schema.GroupVersion{}, fmt.Errorf("the hub serves %s.%s neither at %s nor at %s", clustersResource, clusterv1.GroupVersion.Group, clusterv1.GroupVersion.Version, v1beta1.Version)
}

// watchClusters runs informers on Clusters of one version and their Secrets until ctx
// is done or the version is no longer served.
func (s *clusterAPI) watchClusters(ctx context.Context, version schema.GroupVersion, dyn dynamic.Interface, typed kubernetes.Interface, publish func([]clusterinformers.Spec)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	dirty := trigger.New()
	informers := make([]*namespaceInformers, len(s.Namespaces))
	for i, namespace := range s.Namespaces {
		n, err := newNamespaceInformers(namespace, namespaceOptions{
			clusters: dyn.Resource(version.WithResource(clustersResource)).Namespace(namespace), secrets: typed.CoreV1().Secrets(namespace), client: dyn,
			log: s.Logger, trigger: dirty.Fire, notServed: func() { cancel(errVersionNotServed) },
		})
		if err != nil {
			return err
		}
		informers[i] = n
	}
	for _, n := range informers {
		n.start(ctx, &running)
	}
	for {
		select {
		case <-dirty:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if sleep.For(ctx, coalescePeriod) != nil {
			return context.Cause(ctx)
		}
		select {
		case <-dirty: // came in the meantime, and is in the specs that are read now
		default:
		}
		if specs, ok := s.specs(informers); ok {
			publish(specs)
		}
	}
}

// specs merges the namespaces, sorted by name. It is not known before every
// namespace is, or access to it is forbidden.
func (s *clusterAPI) specs(informers []*namespaceInformers) ([]clusterinformers.Spec, bool) {
	merged := []clusterinformers.Spec{}
	for _, n := range informers {
		specs, state := n.specs()
		switch state {
		case namespaceUnknown:
			return nil, false
		case namespaceKnown:
			s.lastKnown[n.namespace] = specs
		case namespaceForbidden: // what was known of it holds
		}
		merged = append(merged, s.lastKnown[n.namespace]...)
	}
	slices.SortFunc(merged, func(a, b clusterinformers.Spec) int { return strings.Compare(a.Name, b.Name) })
	return merged, true
}
