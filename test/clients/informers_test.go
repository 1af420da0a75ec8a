package clients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"federator.dev/federator/test/kube"
)

// lost is why /fleet is not for stores that key by namespace and name.
const lost = "stores key by namespace and name and keep one of three: /flat is for them, or the informer of module client"

// following runs an informer until its store has synced, and says what it holds.
func following(make func(c *clients) cache.SharedIndexInformer, line func(any) (string, error)) act {
	return withClients(func(ctx context.Context, _ *target, c *clients) (answer, error) {
		var out answer
		err := follow(ctx, make(c), func(i cache.SharedIndexInformer) error {
			for _, o := range i.GetStore().List() {
				l, err := line(o)
				if err != nil {
					return err
				}
				out.lines = append(out.lines, l)
			}
			out.text = fmt.Sprintf("%d in the store", len(out.lines))
			if c.lists.Load() == 0 {
				out.text += ", by a streaming list"
			}
			return nil
		})
		return out, err
	})
}

// follow runs an informer while do does.
func follow(ctx context.Context, informer cache.SharedIndexInformer, do func(cache.SharedIndexInformer) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the informer has not synced")
	}
	return do(informer)
}

func typedPods(c *clients, resync time.Duration) cache.SharedIndexInformer {
	return informers.NewSharedInformerFactory(c.typed, resync).Core().V1().Pods().Informer()
}

func lineOfPod(o any) (string, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return "", fmt.Errorf("%T is no Pod", o)
	}
	return podLine(p.Namespace, p.Name, p.Spec.Containers), nil
}

func lineOfObject(o any) (string, error) {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		return plain(o)
	case *metav1.PartialObjectMetadata:
		return o.Namespace + "/" + o.Name + " " + o.Labels["site"] + " " + string(o.UID), nil
	}
	return "", fmt.Errorf("%T is not known", o)
}

var informerRows = []row{
	{
		act: "typed informer of Pods", do: following(func(c *clients) cache.SharedIndexInformer { return typedPods(c, 0) }, lineOfPod),
		real: "4 in the store, by a streaming list", fleet: says("4 in the store, by a streaming list"), flat: all("12 in the store, by a streaming list"), members: same, why: lost,
	},
	{
		act: "dynamic informer of Boats", do: following(func(c *clients) cache.SharedIndexInformer {
			return dynamicinformer.NewDynamicSharedInformerFactory(c.dynamic, 0).ForResource(boats).Informer()
		}, lineOfObject),
		real: "1 in the store, by a streaming list", fleet: says("1 in the store, by a streaming list"), flat: all("3 in the store, by a streaming list"), members: same, why: lost,
	},
	{
		act: "metadata informer of Pods", do: following(func(c *clients) cache.SharedIndexInformer {
			return metadatainformer.NewSharedInformerFactory(c.metadata, 0).ForResource(podResource).Informer()
		}, lineOfObject),
		real: "4 in the store, by a streaming list", fleet: says("4 in the store, by a streaming list"), flat: all("12 in the store, by a streaming list"), members: same, why: lost,
	},
	{
		act: "typed informer with a resync", do: withClients(resynced),
		real: "4 updates of a resync", fleet: says("4 updates of a resync"), flat: says("12 updates of a resync"), members: same, why: lost,
	},
	{
		act: "informer that is stopped, and what it logs as an error", do: withClients(stopped),
		real: "nothing", fleet: same, flat: same, members: same,
	},
	{
		act: "clients that key by UID", do: withClients(keyed(func(p *corev1.Pod) string { return string(p.UID) })),
		real: "4 of 4 Pods", fleet: says("12 of 12 Pods"), flat: says("12 of 12 Pods"), members: same,
	},
	{
		act: "clients that key by namespace and name", do: withClients(keyed(func(p *corev1.Pod) string { return p.Namespace + "/" + p.Name })),
		real: "4 of 4 Pods", fleet: says("4 of 12 Pods"), flat: says("12 of 12 Pods"), members: same, why: lost,
	},
	{
		act: "controller-runtime's client: Get", do: withClients(func(ctx context.Context, t *target, c *clients) (answer, error) {
			k, err := client.New(t.config, client.Options{HTTPClient: c.http})
			if err != nil {
				return answer{}, err
			}
			var p corev1.Pod
			if err := k.Get(ctx, types.NamespacedName{Namespace: t.ns("shop"), Name: "web-0"}, &p); err != nil {
				return answer{}, err
			}
			return answer{text: "Pod " + p.Name, lines: podLines([]corev1.Pod{p})}, nil
		}),
		real: "Pod web-0", fleet: says("`AmbiguousName: pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "controller-runtime's client: List by labels and fields", do: withClients(func(ctx context.Context, t *target, c *clients) (answer, error) {
			k, err := client.New(t.config, client.Options{HTTPClient: c.http})
			if err != nil {
				return answer{}, err
			}
			var l corev1.PodList
			if err := k.List(ctx, &l, client.MatchingLabels{"app": "web"}, client.MatchingFields{"metadata.name": "web-0"}); err != nil {
				return answer{}, err
			}
			return answer{text: fmt.Sprint(len(l.Items), " of PodList"), lines: podLines(l.Items)}, nil
		}),
		real: "1 of PodList", fleet: all("3 of PodList"), flat: all("3 of PodList"), members: same,
	},
	{
		act: "controller-runtime's client: Watch", do: withClients(func(ctx context.Context, t *target, c *clients) (answer, error) {
			k, err := client.NewWithWatch(t.config, client.Options{HTTPClient: c.http})
			if err != nil {
				return answer{}, err
			}
			w, err := k.Watch(ctx, &corev1.PodList{}, client.InNamespace(t.ns("shop")), client.MatchingFields{"metadata.name": "web-0"})
			if err != nil {
				return answer{}, err
			}
			defer w.Stop()
			e := <-w.ResultChan()
			_, err = lineOfPod(e.Object)
			return answer{text: fmt.Sprint(e.Type, " web-0")}, err
		}),
		real: "ADDED web-0", fleet: same, flat: same, members: same,
	},
	{
		act: "controller-runtime's cache: List", do: withClients(cached("")),
		real: "4 of PodList", fleet: says("4 of PodList"), flat: all("12 of PodList"), members: same, why: lost,
	},
	{
		act: "controller-runtime's cache: List by an index of spec.nodeName", do: withClients(cached("node-1")),
		real: "4 of PodList", fleet: says("4 of PodList"), flat: same, members: same, why: lost,
	},
	{
		act: "controller-runtime's cache: Get", do: withClients(func(ctx context.Context, t *target, c *clients) (answer, error) {
			var p corev1.Pod
			err := inCache(ctx, t, c, func(k ctrlcache.Cache) error {
				return k.Get(ctx, types.NamespacedName{Namespace: t.ns("shop"), Name: "web-0"}, &p)
			})
			return answer{text: "Pod " + p.Name}, err
		}),
		real: "Pod web-0", fleet: says("Pod web-0"), flat: same, members: same, why: "one of three, by chance",
	},
}

// keyed counts the pods that are left when a client keys them.
func keyed(key func(*corev1.Pod) string) func(context.Context, *target, *clients) (answer, error) {
	return func(ctx context.Context, _ *target, c *clients) (answer, error) {
		l, err := c.typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return answer{}, err
		}
		keys := map[string]bool{}
		for i := range l.Items {
			keys[key(&l.Items[i])] = true
		}
		return answer{text: fmt.Sprintf("%d of %d Pods", len(keys), len(l.Items))}, nil
	}
}

// resynced counts the objects that a resync brings again.
func resynced(ctx context.Context, _ *target, c *clients) (answer, error) {
	informer := typedPods(c, 100*time.Millisecond)
	var mu sync.Mutex
	seen := map[string]bool{}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		old, now := before.(*corev1.Pod), after.(*corev1.Pod)
		mu.Lock()
		defer mu.Unlock()
		if old.ResourceVersion == now.ResourceVersion {
			seen[string(now.UID)] = true
		}
	}}); err != nil {
		return answer{}, err
	}
	err := follow(ctx, informer, func(i cache.SharedIndexInformer) error {
		return kube.Until(ctx, patience, func() error {
			mu.Lock()
			defer mu.Unlock()
			if n := len(i.GetStore().ListKeys()); len(seen) < n {
				return fmt.Errorf("%d of %d have come again", len(seen), n)
			}
			return nil
		})
	})
	return answer{text: fmt.Sprintf("%d updates of a resync", len(seen))}, err
}

// stopped runs informers, stops them, and says what client-go has logged of it.
func stopped(ctx context.Context, _ *target, c *clients) (answer, error) {
	var own sink
	ctx = klog.NewContext(ctx, own.logger())
	dynamics := dynamicinformer.NewDynamicSharedInformerFactory(c.dynamic, 0).ForResource(boats).Informer()
	for _, i := range []cache.SharedIndexInformer{typedPods(c, 0), dynamics} {
		if err := follow(ctx, i, func(cache.SharedIndexInformer) error { return nil }); err != nil {
			return answer{}, err
		}
	}
	return answer{text: code(strings.Join(own.since(0), "; "))}, nil
}

// cached lists pods out of controller-runtime's cache, those of a node if one is named.
func cached(node string) func(context.Context, *target, *clients) (answer, error) {
	return func(ctx context.Context, t *target, c *clients) (answer, error) {
		var l corev1.PodList
		var opts []client.ListOption
		if node != "" {
			opts = append(opts, client.MatchingFields{"spec.nodeName": t.key(home, node)})
		}
		err := inCache(ctx, t, c, func(k ctrlcache.Cache) error { return k.List(ctx, &l, opts...) })
		return answer{text: fmt.Sprint(len(l.Items), " of PodList"), lines: podLines(l.Items)}, err
	}
}

// inCache runs a cache of pods while do does.
func inCache(ctx context.Context, t *target, c *clients, do func(ctrlcache.Cache) error) error {
	k, err := ctrlcache.New(t.config, ctrlcache.Options{HTTPClient: c.http})
	if err != nil {
		return err
	}
	if err := k.IndexField(ctx, &corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var ended error
	running.Go(func() { ended = k.Start(ctx) })
	if !k.WaitForCacheSync(ctx) {
		return errors.Join(errors.New("the cache has not synced"), ended)
	}
	return do(k)
}
