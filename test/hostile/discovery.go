package hostile

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
)

// discoveryClasses attack with what is served.
var discoveryClasses = []Class{
	{"kind-with-dots", 4, func(rng *rand.Rand) *Attack {
		resource := one(rng, "pods", "configmaps", "services")
		kind := one(rng, "ClusterRole.rbac.authorization.k8s.io", "Deployment.apps", "Secret.", ".Secret", "Ingress.networking.k8s.io")
		version := one(rng, "v1beta1", "v9", "v0alpha1")
		return serving(version, "", resource, kind)
	}},
	{"plural-of-another", 6, func(rng *rand.Rand) *Attack {
		mine := one(rng, "pods", "configmaps", "services", "serviceaccounts")
		theirs := one(rng, [2]string{"", "Secret"}, [2]string{"", "ConfigMap"}, [2]string{"apps", "Deployment"}, [2]string{"networking.k8s.io", "Ingress"}, [2]string{"", "Pod"}, [2]string{"", "Service"})
		l := serving(one(rng, "v9", "v1beta1", "v1"), theirs[0], mine, theirs[1])
		l.Refused = mine != strings.ToLower(theirs[1])+"s"
		return l
	}},
	{"kind-renamed", 4, func(rng *rand.Rand) *Attack {
		resource, kind := one(rng, "pods", "secrets", "deployments", "ingresses", "configmaps"), one(rng, "Zzz", "Aaa", "Namespace", "")
		return &Attack{Document: eachResource(func(c *Call, r map[string]any) {
			if r["resource"] == resource {
				responseKind(r)["kind"] = kind
			}
		})}
	}},
	{"resource-renamed", 4, func(rng *rand.Rand) *Attack {
		kind, resource := one(rng, "Pod", "Secret", "Deployment", "ConfigMap"), one(rng, "zzz", "secrets", "nodes", "pods", "a/b", "")
		return &Attack{Document: eachResource(func(c *Call, r map[string]any) {
			if responseKind(r)["kind"] == kind {
				r["resource"] = resource
			}
		})}
	}},
	{"scope-flipped", 2, func(*rand.Rand) *Attack {
		return &Attack{Document: eachResource(func(c *Call, r map[string]any) {
			r["scope"] = map[any]string{"Namespaced": "Cluster", "Cluster": "Namespaced"}[r["scope"]]
		})}
	}},
	{"names-of-others", 2, func(rng *rand.Rand) *Attack {
		n := 1 + rng.IntN(200)
		return &Attack{Document: eachResource(func(c *Call, r map[string]any) {
			var short, categories []any
			rng := c.Rand(fmt.Sprint(r["resource"]))
			for i := range n {
				short = append(short, one(rng, "po", "cm", "secrets", "pods", "deploy"), fmt.Sprintf("n%d", i))
				categories = append(categories, one(rng, "all", "secret", strings.Repeat("c", 300)), fmt.Sprintf("c%d", i))
			}
			r["shortNames"], r["categories"], r["singularResource"] = short, categories, one(rng, "pod", "secret", strings.Repeat("s", 2000))
		})}
	}},
	{"bogus-versions", 2, func(rng *rand.Rand) *Attack {
		version := one(rng, "", "v1/v2", "Z!", strings.Repeat("v", 5000), "..", "v1\n", "v1%2f..", "v999999999999999999999")
		group := one(rng, "", "apps", "..", "a b", strings.Repeat("g.", 300), "rbac.authorization.k8s.io/v1")
		return serving(version, group, one(rng, "pods", "secrets"), one(rng, "Pod", "Secret", "Zzz"))
	}},
	{"many-kinds", 5, func(rng *rand.Rand) *Attack {
		n, group := 500+rng.IntN(4000), one(rng, "", "invented.example.org", "apps")
		return &Attack{
			Document: func(c *Call, doc map[string]any) {
				if c.Path != "/apis" && (c.Path != "/api" || group != "") {
					return
				}
				var resources []any
				for i := range n {
					resources = append(resources, resourceNamed(fmt.Sprintf("invented%ds", i), group, "v1alpha9", fmt.Sprintf("Invented%d", i)))
				}
				addVersion(doc, group, "v1alpha9", resources)
			},
			Answer: emptyList("invented"),
		}
	}},
	{"kinds-vanish", 3, func(rng *rand.Rand) *Attack {
		share := rng.Float64()
		var requests atomic.Uint64 // each time others
		return &Attack{Document: func(c *Call, doc map[string]any) {
			again := c.Rand(c.Path, fmt.Sprint(requests.Add(1)))
			for _, v := range versions(doc) {
				resources, _ := v["resources"].([]any)
				var kept []any
				for _, r := range resources {
					if again.Float64() > share {
						kept = append(kept, r)
					}
				}
				v["resources"] = kept
			}
		}}
	}},
	{"other-version", 3, func(rng *rand.Rand) *Attack {
		to := one(rng, "v1beta1", "v2", "v1alpha1")
		return &Attack{Document: func(_ *Call, doc map[string]any) {
			for _, v := range versions(doc) {
				v["version"] = to
			}
		}}
	}},
	{"discovery-garbage", 2, func(rng *rand.Rand) *Attack {
		value := one[any](rng, nil, "x", 5, []any{}, []any{nil, 5, "x"}, map[string]any{"a": nil})
		return &Attack{Document: eachResource(func(c *Call, r map[string]any) {
			rng := c.Rand(fmt.Sprint(r["resource"]))
			for _, field := range []string{"verbs", "shortNames", "responseKind", "scope"} {
				if rng.IntN(4) == 0 {
					r[field] = value
				}
			}
		})}
	}},
}

// serving adds one resource to a version of a group.
func serving(version, group, resource, kind string) *Attack {
	return &Attack{Document: func(c *Call, doc map[string]any) {
		if group == "" && c.Path == "/api" || group != "" && c.Path == "/apis" {
			addVersion(doc, group, version, []any{resourceNamed(resource, group, version, kind)})
		}
	}}
}

func resourceNamed(resource, group, version, kind string) map[string]any {
	return map[string]any{
		"resource": resource, "responseKind": map[string]any{"group": group, "version": version, "kind": kind},
		"scope": "Namespaced", "singularResource": strings.ToLower(kind), "verbs": []any{"get", "list", "watch"},
	}
}

// addVersion puts resources into a group's version, before all others.
func addVersion(doc map[string]any, group, version string, resources []any) {
	items, ok := doc["items"].([]any)
	if !ok {
		return
	}
	served := map[string]any{"version": version, "freshness": "Current", "resources": resources}
	for _, item := range items {
		g, _ := item.(map[string]any)
		name, _ := metadata(g)["name"].(string)
		if name != group {
			continue
		}
		all, _ := g["versions"].([]any)
		for _, v := range all {
			if v, ok := v.(map[string]any); ok && v["version"] == version {
				old, _ := v["resources"].([]any)
				v["resources"] = append(resources, old...)
				return
			}
		}
		g["versions"] = append([]any{served}, all...)
		return
	}
	doc["items"] = append(items, map[string]any{"metadata": map[string]any{"name": group}, "versions": []any{served}})
}

// versions returns all versions of an aggregated discovery document.
func versions(doc map[string]any) (out []map[string]any) {
	items, _ := doc["items"].([]any)
	for _, item := range items {
		g, _ := item.(map[string]any)
		all, _ := g["versions"].([]any)
		for _, v := range all {
			if v, ok := v.(map[string]any); ok {
				out = append(out, v)
			}
		}
	}
	return out
}

// eachResource changes every resource of discovery.
func eachResource(change func(c *Call, r map[string]any)) func(*Call, map[string]any) {
	return func(c *Call, doc map[string]any) {
		for _, v := range versions(doc) {
			resources, _ := v["resources"].([]any)
			for _, r := range resources {
				if r, ok := r.(map[string]any); ok {
					change(c, r)
				}
			}
		}
	}
}

func responseKind(r map[string]any) map[string]any {
	kind, ok := r["responseKind"].(map[string]any)
	if !ok {
		kind = map[string]any{}
		r["responseKind"] = kind
	}
	return kind
}

// emptyList answers lists and watches of resources that nobody has.
func emptyList(prefix string) func(http.ResponseWriter, *http.Request, *Call) bool {
	return func(w http.ResponseWriter, r *http.Request, c *Call) bool {
		if !strings.HasPrefix(c.Resource, prefix) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		if c.Verb == List {
			fmt.Fprintf(w, `{"kind":"List","apiVersion":%q,"metadata":{"resourceVersion":"1001"},"items":[]}`, c.APIVersion())
			return true
		}
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"X","apiVersion":%q,"metadata":{"resourceVersion":"1001","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", c.APIVersion())
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}
}
