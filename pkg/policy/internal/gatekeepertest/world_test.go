package gatekeepertest

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// worldGenerator makes the objects of a member, such as the templates are about, and
// mutates some of them.
type worldGenerator struct{ generator }

var worldNamespaces = []string{"prod-a", "shop", "kube-x", "test"}

func (g worldGenerator) world(n int) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, name := range worldNamespaces {
		out = append(out, g.wrap("v1", "Namespace", "", name, map[string]any{"spec": map[string]any{"finalizers": []any{"kubernetes"}}, "status": map[string]any{"phase": "Active"}}))
	}
	seen := map[string]bool{}
	for len(out) < n {
		o := g.object()
		id := o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
		if seen[id] {
			continue
		}
		seen[id] = true
		if g.maybe(20) {
			g.mutate(o)
		}
		out = append(out, o)
	}
	return out
}

func (g worldGenerator) wrap(apiVersion, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(o.Object, fields)
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	o.SetNamespace(namespace)
	l := map[string]string{}
	for key, values := range map[string][]string{"app": {"a", "b"}, "owner": {"me", "Me"}, "team": {"x"}, "env": {"production", "test"}} {
		if g.maybe(60) {
			l[key] = g.one(values...)
		}
	}
	if len(l) > 0 {
		o.SetLabels(l)
	}
	return o
}

func (g worldGenerator) object() *unstructured.Unstructured {
	ns := g.one(worldNamespaces...)
	name := g.one("skip", "web", "api", "db", "n1", "n2", "n3", "n4", "n5", "n6")
	selector := map[string]any{"matchLabels": map[string]any{"app": g.one("a", "b")}}
	switch g.one("Pod", "Pod", "Deployment", "Deployment", "StatefulSet", "Service", "Ingress", "StorageClass", "PersistentVolumeClaim", "PodDisruptionBudget", "HorizontalPodAutoscaler") {
	case "Pod":
		return g.wrap("v1", "Pod", ns, name, map[string]any{"spec": g.podSpec()})
	case "Deployment":
		return g.wrap("apps/v1", "Deployment", ns, name, map[string]any{"spec": map[string]any{"replicas": int64(g.IntN(4)), "selector": selector, "template": map[string]any{"spec": g.podSpec()}}})
	case "StatefulSet":
		return g.wrap("apps/v1", "StatefulSet", ns, name, map[string]any{"spec": map[string]any{"replicas": int64(g.IntN(4)), "selector": selector, "volumeClaimTemplates": []any{
			map[string]any{"metadata": map[string]any{"name": "data"}, "spec": g.claim()},
		}}})
	case "Service":
		return g.wrap("v1", "Service", ns, name, map[string]any{"spec": map[string]any{"selector": map[string]any{"app": g.one("a", "b", "c", "d", "e"), "tier": g.one("x", "y", "z")}}})
	case "Ingress":
		var rules []any
		for range g.IntN(3) {
			rules = append(rules, map[string]any{"host": g.one("a", "b", "c", "d", "e", "f") + ".example"})
		}
		return g.wrap("networking.k8s.io/v1", "Ingress", ns, name, map[string]any{"spec": map[string]any{"rules": rules}})
	case "StorageClass":
		return g.wrap("storage.k8s.io/v1", "StorageClass", "", g.one("fast", "slow"), map[string]any{"provisioner": "x"})
	case "PersistentVolumeClaim":
		return g.wrap("v1", "PersistentVolumeClaim", ns, name, map[string]any{"spec": g.claim()})
	case "PodDisruptionBudget":
		return g.wrap("policy/v1", "PodDisruptionBudget", ns, name, map[string]any{"spec": map[string]any{"selector": selector, g.one("minAvailable", "maxUnavailable"): int64(g.IntN(3))}})
	default:
		return g.wrap("autoscaling/v2", "HorizontalPodAutoscaler", ns, name, map[string]any{"spec": map[string]any{
			"minReplicas": int64(g.IntN(3)), "maxReplicas": int64(g.IntN(14)),
			"scaleTargetRef": map[string]any{"kind": g.one("Deployment", "StatefulSet"), "name": g.one("web", "api", "db", "gone")},
		}})
	}
}

func (g worldGenerator) claim() map[string]any {
	if g.maybe(20) {
		return map[string]any{}
	}
	return map[string]any{"storageClassName": g.one("fast", "slow", "gone")}
}

func (g worldGenerator) podSpec() map[string]any {
	var containers []any
	for i := range g.IntN(3) + 1 {
		containers = append(containers, map[string]any{"name": fmt.Sprintf("c%d", i), "image": g.one("registry.example/web:1", "nginx:1", "docker.io/pause:3", "other/x")})
	}
	return map[string]any{"containers": containers}
}

// mutate takes something out of an object, or puts something else in its place.
func (g worldGenerator) mutate(o *unstructured.Unstructured) {
	at := o.Object
	for _, kept := range []string{"apiVersion", "kind", "metadata"} {
		at = maps.Clone(at)
		delete(at, kept)
	}
	if len(at) == 0 {
		return
	}
	field := g.one(slices.Sorted(maps.Keys(at))...)
	parent, key := o.Object, field
	for {
		inner, ok := parent[key].(map[string]any)
		if !ok || len(inner) == 0 || g.maybe(20) {
			break
		}
		parent, key = inner, g.one(slices.Sorted(maps.Keys(inner))...)
	}
	switch g.IntN(6) {
	case 0:
		delete(parent, key)
	case 1:
		parent[key] = nil
	case 2:
		parent[key] = int64(g.IntN(3))
	case 3:
		parent[key] = "text"
	case 4:
		parent[key] = []any{map[string]any{"a": "b"}, "c"}
	default:
		parent[key] = map[string]any{"app": true}
	}
}
