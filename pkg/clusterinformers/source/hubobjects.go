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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// memberObjects is how objects of one kind on the hub describe members.
type memberObjects struct {
	source        string                // in logs and errors, such as "Cluster API"
	versions      []schema.GroupVersion // that are understood, the preferred one first
	resource      string
	kind          string
	clusterScoped bool
	labels        string // selector of the objects; "": all

	// trim keeps of an object what describes its member.
	trim func(*unstructured.Unstructured) description

	// selectSecrets narrows lists and watches to the Secrets with credentials; nil: there are
	// none. keepOf returns what is kept of one, by key, and may be given what it returned.
	selectSecrets func(*metav1.ListOptions)
	keepOf        func(*corev1.Secret) map[string][]byte

	// files are read again, by reload, when one of them changes. The goroutine that calls it
	// calls the descriptions, too.
	files  []string
	reload func()
}

// description is what is kept of an object that describes a member.
type description interface {
	metav1.Object
	// member returns the member. Secrets are those of the object's namespace or, of a
	// cluster-scoped object, of all.
	member(secrets) described
}

// described is a member. One that is preferably called otherwise than its object is called so
// unless another object is, or the member of an older one.
type described struct {
	clusterinformers.Spec

	preferred string // name; "" is that of Spec
}

// hubOptions are what all sources of objects on the hub are given.
type hubOptions struct {
	config     *rest.Config
	namespaces []string // to look in; none means all
	log        *slog.Logger
}

// hubObjects is a source of members that objects on the hub describe.
type hubObjects struct {
	hubOptions
	objects memberObjects

	// lastKnown is what was last known of each namespace. It outlives the informers,
	// so that members are not removed while these restart. One goroutine uses it.
	lastKnown map[string][]found
	names     map[string]string // of members, by UID: what one was called it is called while it is there
	warned    map[string]bool   // objects that something was logged of
	stamps    []fileStamp
	loads     int // of the files
}

// newHubObjects returns the source, or what is wrong with the options.
func newHubObjects(o hubOptions, objects memberObjects) (*hubObjects, error) {
	fail := func(format string, args ...any) (*hubObjects, error) {
		return nil, fmt.Errorf(objects.source+": "+format, args...)
	}
	if o.log == nil {
		return fail("Logger is required")
	}
	if o.config == nil {
		return fail("Config is required")
	}
	o.namespaces = slices.Clone(o.namespaces)
	slices.Sort(o.namespaces)
	for i, n := range o.namespaces {
		if n == "" {
			return fail("a namespace must have a name; an empty list means every namespace")
		}
		if i > 0 && n == o.namespaces[i-1] {
			return fail("namespace %q is named twice", n)
		}
	}
	if len(o.namespaces) == 0 {
		o.namespaces = []string{metav1.NamespaceAll}
	}
	o.config = rest.CopyConfig(o.config)
	o.config.QPS = -1
	o.config.WarningHandler = rest.NoWarnings{} // that a version is deprecated is known
	if o.config.UserAgent == "" {
		o.config.UserAgent = memberclient.UserAgent
	}
	return &hubObjects{hubOptions: o, objects: objects}, nil
}

const (
	coalescePeriod = 20 * time.Millisecond // changes within it are published together
	minRetryDelay  = time.Second
	maxRetryDelay  = 15 * time.Second
	hubTimeout     = 10 * time.Second // for one request that is not a list or watch
)

// errVersionNotServed ends the informers when the version that they follow is no longer
// served.
var errVersionNotServed = errors.New("this version is no longer served")

// errNotServed is what discovery says of a kind that is not installed.
var errNotServed = errors.New("the hub does not serve")

// Run implements clusterinformers.Source. It waits for the kind to be installed, and follows
// the hub to another version when it no longer serves the one in use.
func (s *hubObjects) Run(ctx context.Context, set func(clusterinformers.View)) error {
	client, end, err := memberclient.NewHubHTTPClient(s.config)
	if err != nil {
		return fmt.Errorf("%s: %w", s.objects.source, err)
	}
	defer end()
	dyn, err := dynamic.NewForConfigAndClient(s.config, client)
	if err != nil {
		return fmt.Errorf("%s: %w", s.objects.source, err)
	}
	typed, err := kubernetes.NewForConfigAndClient(s.config, client)
	if err != nil {
		return fmt.Errorf("%s: %w", s.objects.source, err)
	}
	s.lastKnown, s.names, s.warned = map[string][]found{}, map[string]string{}, map[string]bool{}
	s.readFiles()
	var last *clusterinformers.View
	publish := func(view clusterinformers.View) {
		if last == nil || !reflect.DeepEqual(view, *last) {
			last = &view
			set(view)
		}
	}
	for ctx.Err() == nil {
		version, err := s.awaitVersion(ctx, client, func() {
			if last == nil { // the hub has no objects that could describe any
				publish(clusterinformers.View{Members: []clusterinformers.Spec{}, Partial: true})
			}
		})
		if err != nil {
			break // ctx is done
		}
		if err := s.watchObjects(ctx, version, dyn, typed, publish); errors.Is(err, errVersionNotServed) {
			s.log.Info(s.objects.source+" version is no longer served", "version", version.Version)
			_ = sleep.For(ctx, minRetryDelay) // the loop sees that ctx is done
		}
	}
	return nil
}

// readFiles has the files read if they have changed, and reports whether they have.
func (s *hubObjects) readFiles() bool {
	if s.objects.reload == nil {
		return false
	}
	// The stamps are older than what is read: a write in between shows at the next look.
	stamps := stampsOf(s.objects.files)
	if s.stamps != nil && slices.Equal(s.stamps, stamps) {
		return false
	}
	s.stamps = stamps
	s.loads++
	s.objects.reload()
	return true
}

// awaitVersion returns the version to watch once the hub serves one; it calls notServed when the hub
// says that it serves none. Its error is the context's.
func (s *hubObjects) awaitVersion(ctx context.Context, client *http.Client, notServed func()) (schema.GroupVersion, error) {
	lastErr := ""
	for delay := minRetryDelay; ; delay = min(2*delay, maxRetryDelay) {
		version, err := s.servedVersion(ctx, client)
		if err == nil {
			return version, nil
		}
		if ctx.Err() != nil {
			return schema.GroupVersion{}, ctx.Err()
		}
		if errors.Is(err, errNotServed) {
			notServed()
		}
		if m := message.Clip(err.Error()); m != lastErr {
			lastErr = m
			s.log.Warn(s.objects.source+" not found on the hub, retrying", "error", m)
		}
		if err := sleep.For(ctx, delay); err != nil {
			return schema.GroupVersion{}, err
		}
	}
}

func (s *hubObjects) servedVersion(ctx context.Context, client *http.Client) (schema.GroupVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	withContext := *client
	withContext.Transport = memberclient.ContextTransport{Context: ctx, Base: client.Transport}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(s.config, &withContext)
	if err != nil {
		return schema.GroupVersion{}, err
	}
	var asked []string
	for _, version := range s.objects.versions {
		list, err := d.ServerResourcesForGroupVersion(version.String())
		asked = append(asked, version.Version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return schema.GroupVersion{}, err
		}
		for _, r := range list.APIResources {
			if r.Name == s.objects.resource {
				return version, nil
			}
		}
	}
	return schema.GroupVersion{}, fmt.Errorf("%w %s at %s", errNotServed, s.objects.versions[0].WithResource(s.objects.resource).GroupResource(), strings.Join(asked, " or "))
}

// watchObjects runs informers on the objects of one version and their Secrets until ctx
// is done or the version is no longer served.
func (s *hubObjects) watchObjects(ctx context.Context, version schema.GroupVersion, dyn dynamic.Interface, typed kubernetes.Interface, publish func(clusterinformers.View)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	dirty := trigger.New()
	informers := make([]*namespaceInformers, len(s.namespaces))
	for i, namespace := range s.namespaces {
		n, err := newNamespaceInformers(namespace, &s.objects, namespaceOptions{
			objects: objectsIn(dyn.Resource(version.WithResource(s.objects.resource)), namespace, s.objects.clusterScoped),
			secrets: typed.CoreV1().Secrets(namespace), client: dyn,
			log: s.log, trigger: dirty.Fire, notServed: func() { cancel(errVersionNotServed) },
		})
		if err != nil {
			return err
		}
		informers[i] = n
	}
	for _, n := range informers {
		n.start(ctx, &running)
	}
	look := make(<-chan time.Time)
	if s.objects.reload != nil {
		tick := time.NewTicker(filePollInterval)
		defer tick.Stop()
		look = tick.C
	}
	for {
		select {
		case <-dirty:
			if sleep.For(ctx, coalescePeriod) != nil {
				return context.Cause(ctx)
			}
			select {
			case <-dirty: // came in the meantime, and is in the specs that are read now
			default:
			}
		case <-look:
			if !s.readFiles() {
				continue
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if view, ok := s.view(version, informers); ok {
			publish(view)
		}
	}
}

func objectsIn(all dynamic.NamespaceableResourceInterface, namespace string, clusterScoped bool) dynamic.ResourceInterface {
	if clusterScoped {
		return all
	}
	return all.Namespace(namespace)
}

// view merges the namespaces, sorted by name. It is not known before every namespace is, or access
// to it is forbidden: then what was known of it holds, and it is partial.
func (s *hubObjects) view(version schema.GroupVersion, informers []*namespaceInformers) (clusterinformers.View, bool) {
	merged, partial := []found{}, false
	for _, n := range informers {
		members, state := n.members(s.loads)
		switch state {
		case namespaceUnknown:
			return clusterinformers.View{}, false
		case namespaceKnown:
			s.lastKnown[n.namespace] = members
		case namespaceForbidden:
			partial = true
		}
		merged = append(merged, s.lastKnown[n.namespace]...)
	}
	return clusterinformers.View{Members: s.named(version, s.allowed(merged)), Partial: partial}, true
}

// allowed leaves out what would be called as a member that no object describes, or one without a
// namespace.
func (s *hubObjects) allowed(members []found) []found {
	return slices.DeleteFunc(members, func(m found) bool {
		reserved := !s.objects.clusterScoped && slices.Contains(reservedNamespaces, m.namespace)
		if reserved {
			s.warnOnce(m.Spec.Name, "the namespace is reserved: the object describes no member", "namespace", m.namespace, "name", m.name)
		}
		return reserved
	})
}

// reservedNamespaces are the first halves of names that others have: of contexts and of ManagedClusters.
var reservedNamespaces = []string{contextNamespace, managedClusterNamespace}

func (s *hubObjects) warnOnce(object, text string, args ...any) {
	if !s.warned[object] {
		s.warned[object] = true
		s.log.Warn(text, args...)
	}
}

// found is a member and the object that describes it.
type found struct {
	described

	created         time.Time
	namespace, name string // of the object
}

// named gives each member its name and its object. Which it is, is decided by age: a newer object takes
// no name that an older one has, be it its own; and what is called something stays so while it is there.
func (s *hubObjects) named(version schema.GroupVersion, members []found) []clusterinformers.Spec {
	slices.SortFunc(members, func(a, b found) int {
		_, aHas := s.names[a.UID]
		_, bHas := s.names[b.UID]
		switch c := a.created.Compare(b.created); {
		case aHas != bHas && aHas:
			return -1
		case aHas != bHas:
			return 1
		case c != 0:
			return c
		}
		return strings.Compare(a.Spec.Name, b.Spec.Name)
	})
	taken := make(map[string]string, len(members)) // UID of who has it
	names := make(map[string]string, len(members))
	specs := make([]clusterinformers.Spec, 0, len(members))
	for _, m := range members {
		spec, object := m.Spec, m.Spec.Name
		spec.Object = &corev1.ObjectReference{
			APIVersion: version.String(), Kind: s.objects.kind, Namespace: m.namespace, Name: m.name, UID: types.UID(spec.UID),
		}
		for _, name := range []string{s.names[spec.UID], m.preferred, object, object + "-" + spec.UID} {
			if _, is := taken[name]; name != "" && !is {
				spec.Name = name
				break
			}
		}
		if m.preferred != "" && spec.Name != m.preferred {
			s.warnOnce(object, "two members would have the same name: the one of the newer object has another", "member", spec.Name, "name", m.preferred)
		}
		taken[spec.Name], names[spec.UID] = spec.UID, spec.Name
		specs = append(specs, spec)
	}
	s.names = names
	slices.SortFunc(specs, func(a, b clusterinformers.Spec) int { return strings.Compare(a.Name, b.Name) })
	return specs
}
