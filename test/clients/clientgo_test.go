package clients

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

var (
	podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	boats       = schema.GroupVersionResource{Group: "harbour.example", Version: "v1", Resource: "boats"}
)

// withClients runs a row's act with clients whose connections end with it.
func withClients(do func(ctx context.Context, t *target, c *clients) (answer, error)) act {
	return func(ctx context.Context, t *target) (answer, error) {
		c, err := newClients(t.config)
		if err != nil {
			return answer{}, err
		}
		defer c.http.CloseIdleConnections()
		out, err := do(ctx, t, c)
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			return answer{text: code(string(status.Status().Reason) + ": " + brief(status.Status().Message))}, nil
		}
		return out, err
	}
}

// clients are those of client-go, over one HTTP client.
type clients struct {
	http      *http.Client
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	discovery *discovery.DiscoveryClient

	lists, streams atomic.Int32 // requests: lists, and watches that begin with one
}

func newClients(config *rest.Config) (*clients, error) {
	c := &clients{}
	config = rest.CopyConfig(config)
	transport, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	own := &http.Transport{TLSClientConfig: transport, ForceAttemptHTTP2: true}
	c.http = &http.Client{Transport: &counting{RoundTripper: own, clients: c}}
	errs := make([]error, 4)
	c.typed, errs[0] = kubernetes.NewForConfigAndClient(config, c.http)
	c.dynamic, errs[1] = dynamic.NewForConfigAndClient(config, c.http)
	c.metadata, errs[2] = metadata.NewForConfigAndClient(config, c.http)
	c.discovery, errs[3] = discovery.NewDiscoveryClientForConfigAndClient(config, c.http)
	return c, errors.Join(errs...)
}

// counting counts the lists that informers ask for.
type counting struct {
	http.RoundTripper
	clients *clients
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	switch query := r.URL.Query(); {
	case query.Get("sendInitialEvents") == "true":
		c.clients.streams.Add(1)
	case query.Get("watch") == "":
		c.clients.lists.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections does as http.Client asks.
func (c *counting) CloseIdleConnections() { c.RoundTripper.(*http.Transport).CloseIdleConnections() }

// podLine distinguishes pods of members by their images.
func podLine(namespace, name string, containers []corev1.Container) string {
	return namespace + "/" + name + " " + containers[0].Image
}

func podLines(pods []corev1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, podLine(p.Namespace, p.Name, p.Spec.Containers))
	}
	return out
}

var clientRows = []row{
	{
		act: "typed: Pods(shop).Get(web-0)", do: withClients(func(ctx context.Context, t *target, c *clients) (answer, error) {
			p, err := c.typed.CoreV1().Pods(t.ns("shop")).Get(ctx, "web-0", metav1.GetOptions{})
			if err != nil {
				return answer{}, err
			}
			return answer{text: "Pod " + p.Name + " of node " + p.Spec.NodeName, lines: podLines([]corev1.Pod{*p})}, nil
		}),
		real: "Pod web-0 of node node-1", fleet: says("`AmbiguousName: pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "typed: Pods(all).List", do: withClients(func(ctx context.Context, _ *target, c *clients) (answer, error) {
			l, err := c.typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			if err != nil {
				return answer{}, err
			}
			return answer{text: fmt.Sprint(len(l.Items), " Pods"), lines: podLines(l.Items)}, nil
		}),
		real: "4 Pods", fleet: all("12 Pods"), flat: all("12 Pods"), members: same,
	},
	{
		act: "typed: List by pages of 3, with remainingItemCount", do: withClients(func(ctx context.Context, _ *target, c *clients) (out answer, err error) {
			var pages []string
			for o := (metav1.ListOptions{Limit: 3}); ; {
				l, err := c.typed.CoreV1().Pods("").List(ctx, o)
				if err != nil {
					return out, err
				}
				page := fmt.Sprint(len(l.Items))
				if l.RemainingItemCount != nil {
					page += fmt.Sprintf(" (%d remain)", *l.RemainingItemCount)
				}
				pages, out.lines = append(pages, page), append(out.lines, podLines(l.Items)...)
				if o.Continue = l.Continue; o.Continue == "" {
					out.text = strings.Join(pages, ", ")
					return out, nil
				}
			}
		}),
		real: "3 (1 remain), 1", fleet: all("3 (9 remain), 3 (6 remain), 3 (3 remain), 3"), flat: all("3 (9 remain), 3 (6 remain), 3 (3 remain), 3"), members: same,
	},
	{
		act: "typed: List with resourceVersion 0", do: withClients(listed(metav1.ListOptions{ResourceVersion: "0"})),
		real: "4 Pods", fleet: all("12 Pods"), flat: all("12 Pods"), members: same,
	},
	{
		act: "typed: List with resourceVersion 0 and limit 3", do: withClients(listed(metav1.ListOptions{ResourceVersion: "0", Limit: 3})),
		real: "4 Pods", fleet: says("3 Pods and more"), flat: says("3 Pods and more"), members: says("3 Pods and more"),
		why: "an API server's watch cache ignores limit; federator keeps to it",
	},
	{
		alone: true, act: "typed: List with a resourceVersion of a moment ago, limit 3 and no match", do: withClients(again(metav1.ListOptions{Limit: 3})),
		real: "3 Pods and more", fleet: says("`Expired: resource version … is too old, or was issued by another replica or before a restart`"), flat: says("`Expired: resource version … is too old, or was issued by another replica or before a restart`"), members: says("`Expired: resource version … is too old, or was issued by another replica or before a restart`"), why: "federator keeps the snapshots of lists whose pages are read, and no others: list again",
	},
	{
		alone: true, act: "typed: List at Exact a resourceVersion of a moment ago", do: withClients(again(metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact})),
		real: "4 Pods", fleet: says("`Expired: resource version … is too old, or was issued by another replica or before a restart`"), flat: says("`Expired: resource version … is too old, or was issued by another replica or before a restart`"), members: says("`Expired: resource version … is too old, or was issued by another replica or before a restart`"), why: "the same",
	},
	{
		act: "typed: List with a continue token that it did not give", do: withClients(listed(metav1.ListOptions{Limit: 1, Continue: "nonsense"})),
		real: "`BadRequest: invalid continue token: continue key is not valid: invalid character '\\u009e' looking for beginning of value`", fleet: says("`BadRequest: continue key is not valid: it is not one of this server's`"), flat: says("`BadRequest: continue key is not valid: it is not one of this server's`"), members: says("`BadRequest: continue key is not valid: it is not one of this server's`"),
		why: "tokens are each server's own",
	},
	{
		act: "typed: Watch after a List sees what is created", do: withClients(created),
		real: "ADDED depot", fleet: same, flat: same, members: same,
	},
	{
		act: "typed: Watch with sendInitialEvents (WatchList)", do: withClients(func(ctx context.Context, _ *target, c *clients) (out answer, err error) {
			w, err := c.typed.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{
				SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			})
			if err != nil {
				return out, err
			}
			defer w.Stop()
			for e := range w.ResultChan() {
				p, ok := e.Object.(*corev1.Pod)
				switch {
				case !ok:
					return out, apierrors.FromObject(e.Object)
				case e.Type == watch.Bookmark && p.Annotations[metav1.InitialEventsAnnotationKey] == "true":
					out.text = fmt.Sprintf("%d events and the bookmark that ends them", len(out.lines))
					return out, nil
				case e.Type == watch.Added:
					out.lines = append(out.lines, podLines([]corev1.Pod{*p})...)
				}
			}
			return out, errors.New("the watch has ended")
		}),
		real: "4 events and the bookmark that ends them", fleet: all("12 events and the bookmark that ends them"), flat: all("12 events and the bookmark that ends them"), members: same,
	},
	{
		act: "typed: watch from a resourceVersion that is long gone", do: withClients(func(ctx context.Context, _ *target, c *clients) (out answer, err error) {
			w, err := c.typed.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: "1"})
			if err != nil {
				return out, err
			}
			defer w.Stop()
			e, more := <-w.ResultChan()
			switch {
			case !more:
				return out, errors.New("the watch has ended")
			case e.Type == watch.Error:
				return out, apierrors.FromObject(e.Object)
			}
			return answer{text: "events"}, nil
		}),
		real: "events", fleet: says("`Expired: resource version 1 is too old, or was issued by another replica or before a restart`"), flat: says("`Expired: resource version 1 is too old, or was issued by another replica or before a restart`"), members: says("`Expired: resource version 1 is too old, or was issued by another replica or before a restart`"),
		why: "an API server may still know what came after it; federator never gave that one out",
	},
	{
		act: "dynamic: List of Boats", do: withClients(func(ctx context.Context, _ *target, c *clients) (answer, error) {
			l, err := c.dynamic.Resource(boats).List(ctx, metav1.ListOptions{})
			if err != nil {
				return answer{}, err
			}
			out := answer{text: fmt.Sprint(len(l.Items), " Boats")}
			for i := range l.Items {
				line, err := plain(&l.Items[i])
				if err != nil {
					return out, err
				}
				out.lines = append(out.lines, line)
			}
			return out, nil
		}),
		real: "1 Boats", fleet: all("3 Boats"), flat: all("3 Boats"), members: same,
	},
	{
		act: "metadata: List of Deployments", do: withClients(func(ctx context.Context, _ *target, c *clients) (answer, error) {
			l, err := c.metadata.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).List(ctx, metav1.ListOptions{})
			if err != nil {
				return answer{}, err
			}
			out := answer{text: fmt.Sprint(len(l.Items), " objects of metadata alone")}
			for _, i := range l.Items {
				out.lines = append(out.lines, i.Namespace+"/"+i.Name+" "+i.Labels["site"]+" "+string(i.UID))
			}
			return out, nil
		}),
		real: "2 objects of metadata alone", fleet: all("6 objects of metadata alone"), flat: all("6 objects of metadata alone"), members: same,
	},
	{
		act: "discovery: aggregated, ServerGroupsAndResources", do: withClients(func(_ context.Context, _ *target, c *clients) (answer, error) {
			groups, resources, err := c.discovery.ServerGroupsAndResources()
			if err != nil {
				return answer{}, err
			}
			n := 0
			for _, r := range resources {
				n += len(r.APIResources)
			}
			return answer{text: fmt.Sprintf("%d groups, %d versions, %d resources in %d requests", len(groups), len(resources), n, c.lists.Load())}, nil
		}),
		real: "22 groups, 23 versions, 114 resources in 2 requests", fleet: says("22 groups, 23 versions, 64 resources in 2 requests"), flat: says("22 groups, 23 versions, 64 resources in 2 requests"), members: says("22 groups, 23 versions, 64 resources in 2 requests"),
		why: "no subresources, nor reviews of others",
	},
	{
		act: "RESTMapper: Boat, boats, bt, and a Deployment's version", do: withClients(func(_ context.Context, _ *target, c *clients) (out answer, err error) {
			groups, err := restmapper.GetAPIGroupResources(c.discovery)
			if err != nil {
				return out, err
			}
			mapper := restmapper.NewDiscoveryRESTMapper(groups)
			for _, k := range []schema.GroupKind{{Group: "harbour.example", Kind: "Boat"}, {Group: "apps", Kind: "Deployment"}} {
				m, err := mapper.RESTMapping(k)
				if err != nil {
					return out, err
				}
				out.lines = append(out.lines, fmt.Sprint(m.Resource, " namespaced ", m.Scope.Name() == meta.RESTScopeNameNamespace))
			}
			short := restmapper.NewShortcutExpander(mapper, c.discovery, nil)
			r, err := short.ResourceFor(schema.GroupVersionResource{Resource: "bt"})
			out.text = fmt.Sprint(r.GroupVersion(), " ", r.Resource)
			return out, err
		}),
		real: "harbour.example/v1 boats", fleet: same, flat: same, members: same,
	},
	{
		act: "scale: Deployments(shop).GetScale(web)", do: withClients(func(ctx context.Context, t *target, c *clients) (answer, error) {
			s, err := c.typed.AppsV1().Deployments(t.ns("shop")).GetScale(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return answer{}, err
			}
			return answer{text: fmt.Sprint(s.Spec.Replicas, " replicas")}, nil
		}),
		real: "2 replicas", fleet: says("`MethodNotAllowed: get is not supported on resources of kind \"deployments/scale.apps\": the query API serves no subresources; send the request to the API server of the member, for example with kubectl --context`"), flat: says("`MethodNotAllowed: get is not supported on resources of kind \"deployments/scale.apps\": the query API serves no subresources; send the request to the API server of acme/eu-1, for example with kubectl --context`"), members: says("`MethodNotAllowed: get is not supported on resources of kind \"deployments/scale.apps\": the query API serves no subresources; send the request to the API server of acme/eu-1, for example with kubectl --context`"),
	},
	{
		act: "typed: Create, Patch and Delete of a ConfigMap, dry", do: withClients(func(ctx context.Context, t *target, c *clients) (answer, error) {
			maps := c.typed.CoreV1().ConfigMaps(t.ns("shop"))
			_, err1 := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{DryRun: []string{"All"}})
			_, err2 := maps.Patch(ctx, "settings", "application/merge-patch+json", []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{DryRun: []string{"All"}})
			err3 := maps.Delete(ctx, "settings", metav1.DeleteOptions{DryRun: []string{"All"}})
			var out []string
			for _, err := range []error{err1, err2, err3} {
				reason := apierrors.ReasonForError(err)
				if err == nil {
					reason = "done"
				}
				out = append(out, string(reason))
			}
			return answer{text: strings.Join(out, ", ")}, nil
		}),
		real: "done, done, done", fleet: says("MethodNotAllowed, MethodNotAllowed, MethodNotAllowed"),
		flat: says("MethodNotAllowed, MethodNotAllowed, MethodNotAllowed"), members: says("MethodNotAllowed, MethodNotAllowed, MethodNotAllowed"),
		why: "nothing is written through federator",
	},
}

// listed lists all pods.
func listed(o metav1.ListOptions) func(context.Context, *target, *clients) (answer, error) {
	return func(ctx context.Context, _ *target, c *clients) (answer, error) {
		l, err := c.typed.CoreV1().Pods("").List(ctx, o)
		if err != nil {
			return answer{}, err
		}
		text := fmt.Sprint(len(l.Items), " Pods")
		if l.Continue != "" {
			text += " and more"
		}
		return answer{text: text, lines: podLines(l.Items)}, nil
	}
}

// again lists all pods, and once more with the list's resourceVersion, when something
// else has changed.
func again(o metav1.ListOptions) func(context.Context, *target, *clients) (answer, error) {
	return func(ctx context.Context, t *target, c *clients) (answer, error) {
		l, err := c.typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return answer{}, err
		}
		if _, err := created(ctx, t, c); err != nil {
			return answer{}, err
		}
		o := o
		o.ResourceVersion = l.ResourceVersion
		return listed(o)(ctx, t, c)
	}
}

// created watches what is created on the home site after a list.
func created(ctx context.Context, t *target, c *clients) (answer, error) {
	maps := c.typed.CoreV1().ConfigMaps(t.ns("depot"))
	l, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return answer{}, err
	}
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion, AllowWatchBookmarks: true})
	if err != nil {
		return answer{}, err
	}
	defer w.Stop()
	name, remove, err := t.create(ctx)
	if err != nil {
		return answer{}, err
	}
	defer remove()
	for e := range w.ResultChan() {
		if m, ok := e.Object.(*corev1.ConfigMap); ok && m.Name == name {
			return answer{text: fmt.Sprint(e.Type, " ", strings.TrimPrefix(m.Namespace, flatPrefix(home)))}, nil
		}
	}
	return answer{}, errors.New("the watch has ended")
}

var creations atomic.Int64

// create creates a ConfigMap in the namespace depot of the home site.
func (t *target) create(ctx context.Context) (name string, remove func(), err error) {
	at, err := t.rig.target(real, home, administrator)
	if err != nil {
		return "", nil, err
	}
	c, err := newClients(at.config)
	if err != nil {
		return "", nil, err
	}
	name = fmt.Sprint("created-", t.user, t.at, "-", creations.Add(1))
	maps := c.typed.CoreV1().ConfigMaps("depot")
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return name, func() {
		_ = maps.Delete(ctx, name, metav1.DeleteOptions{}) // the members go with the test
		c.http.CloseIdleConnections()
	}, err
}
