package hostile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// heldByBinding is how many bytes of violations a binding may hold, with the memory that
// the process may have.
const heldByBinding = 64 << 20

// costClasses show objects that there are not, and that cost much.
var costClasses = []Class{
	{"many-labels", 6, func(rng *rand.Rand) *Attack {
		objects, labels := 20+rng.IntN(60), 2000+rng.IntN(8000)
		return crowd("configmaps", "ConfigMap", objects, func(i int, o map[string]any) {
			metadata(o)["labels"] = numbered("label", labels, fmt.Sprintf("value-%d-", i))
		})
	}},
	{"unique-labels", 5, func(rng *rand.Rand) *Attack {
		objects, labels, long := 2000+rng.IntN(4000), 5+rng.IntN(20), one(rng, 1, 20)
		return crowd("configmaps", "ConfigMap", objects, func(i int, o map[string]any) {
			metadata(o)["labels"] = numbered(fmt.Sprintf("l%d-", i), labels, strings.Repeat("v", long)+fmt.Sprint(i))
		})
	}},
	{"label-churn", 6, func(rng *rand.Rand) *Attack {
		events, labels := 20_000+rng.IntN(10_000), 40+rng.IntN(20)
		return &Attack{Flood: func(c *Call, yield func(map[string]any) bool) {
			if c.Resource != "configmaps" {
				return
			}
			for i := range events {
				o := object(c, "ConfigMap", "default", "churned")
				metadata(o)["labels"] = numbered(fmt.Sprintf("churn%d-", i), labels, fmt.Sprint(i)+strings.Repeat("v", 40)+"-")
				metadata(o)["resourceVersion"] = fmt.Sprint(2000 + i)
				if !yield(map[string]any{"type": []string{"ADDED", "MODIFIED"}[min(i, 1)], "object": o}) {
					return
				}
			}
		}}
	}},
	{"name-churn", 4, func(rng *rand.Rand) *Attack {
		events, long := 5_000+rng.IntN(15_000), 20+rng.IntN(200)
		return &Attack{Flood: func(c *Call, yield func(map[string]any) bool) {
			if c.Resource != "configmaps" {
				return
			}
			for i := range events {
				name := fmt.Sprintf("churned-%d-%s", i/2, strings.Repeat("n", long))
				o := object(c, "ConfigMap", "churn-"+fmt.Sprint(i/2), name)
				metadata(o)["uid"] = fmt.Sprintf("uid-%d-%s", i/2, strings.Repeat("u", long))
				metadata(o)["resourceVersion"] = fmt.Sprint(2000 + i)
				if !yield(map[string]any{"type": []string{"ADDED", "DELETED"}[i%2], "object": o}) {
					return
				}
			}
		}}
	}},
	{"many-owners", 4, func(rng *rand.Rand) *Attack {
		objects, owners := 20+rng.IntN(60), 1000+rng.IntN(5000)
		return crowd("configmaps", "ConfigMap", objects, func(i int, o map[string]any) {
			var all []any
			for n := range owners {
				all = append(all, map[string]any{"apiVersion": "v1", "kind": "Pod", "name": fmt.Sprintf("owner-%d-%d", i, n), "uid": fmt.Sprintf("owner-uid-%d-%d", i, n)})
			}
			metadata(o)["ownerReferences"] = all
		})
	}},
	{"long-fields", 4, func(rng *rand.Rand) *Attack {
		objects, long := 50+rng.IntN(200), 10_000+rng.IntN(100_000)
		return crowd("pods", "Pod", objects, func(i int, o map[string]any) {
			o["spec"] = map[string]any{"nodeName": fmt.Sprintf("node-%d-%s", i, strings.Repeat("n", long)), "containers": []any{}}
			o["status"] = map[string]any{"phase": fmt.Sprintf("phase-%d-%s", i, strings.Repeat("p", long))}
		})
	}},
	{"many-objects", 4, func(rng *rand.Rand) *Attack {
		objects := 5_000 + rng.IntN(20_000)
		return crowd("configmaps", "ConfigMap", objects, nil)
	}},
	{"large-objects", 4, func(rng *rand.Rand) *Attack {
		objects, size := 5+rng.IntN(40), 500_000+rng.IntN(2_000_000)
		return crowd("configmaps", "ConfigMap", objects, func(i int, o map[string]any) {
			metadata(o)["annotations"] = map[string]any{"noise": noise(uint64(i), size)}
		})
	}},
	{"large-churn", 3, func(rng *rand.Rand) *Attack {
		events, size := 50+rng.IntN(200), 200_000+rng.IntN(800_000)
		return &Attack{Flood: func(c *Call, yield func(map[string]any) bool) {
			if c.Resource != "configmaps" {
				return
			}
			for i := range events {
				o := object(c, "ConfigMap", "default", "large")
				metadata(o)["resourceVersion"] = fmt.Sprint(2000 + i)
				metadata(o)["annotations"] = map[string]any{"noise": noise(uint64(i), size)}
				if !yield(map[string]any{"type": []string{"ADDED", "MODIFIED"}[min(i, 1)], "object": o}) {
					return
				}
			}
		}}
	}},
	// Small as JSON and in the index, and much of it as values of Rego.
	{"wide-objects", 3, func(rng *rand.Rand) *Attack {
		objects, fields := 10+rng.IntN(10), 3000+rng.IntN(3000)
		return crowd("configmaps", "ConfigMap", objects, func(_ int, o map[string]any) {
			metadata(o)["annotations"] = numbered("a", fields, "")
		})
	}},
	// An event of each kind begins, as large as one may be, and does not end.
	{"half-events", 5, func(rng *rand.Rand) *Attack {
		size := 5<<20 + rng.IntN(2<<20)
		return &Attack{Half: func(c *Call) []byte {
			head := fmt.Sprintf(`{"type":"ADDED","object":{"apiVersion":%q,"kind":"X","metadata":{"name":"half","annotations":{"x":"`, c.APIVersion())
			return append([]byte(head), bytes.Repeat([]byte("x"), size)...)
		}}
	}},
	{"ingress-hosts", 6, func(rng *rand.Rand) *Attack {
		hosts := 11_000 + rng.IntN(6000)
		return crowd("ingresses", "Ingress", 1+rng.IntN(3), func(i int, o map[string]any) {
			var rules []any
			for n := range hosts {
				rules = append(rules, map[string]any{"host": fmt.Sprintf("host-%d-%d.hostile.example.org", i, n)})
			}
			o["spec"] = map[string]any{"rules": rules}
		})
	}},
	{"many-hosts", 3, func(rng *rand.Rand) *Attack {
		objects, hosts := 200+rng.IntN(400), 50+rng.IntN(200)
		return crowd("ingresses", "Ingress", objects, func(i int, o map[string]any) {
			var rules []any
			for n := range hosts {
				rules = append(rules, map[string]any{"host": fmt.Sprintf("many-%d-%d.hostile.example.org", i, n)})
			}
			o["spec"] = map[string]any{"rules": rules}
		})
	}},
	{"overfull-views", 3, func(rng *rand.Rand) *Attack {
		objects, hosts, long := 1100+rng.IntN(100), 20, 9000+rng.IntN(2000)
		l := crowd("ingresses", "Ingress", objects, func(i int, o map[string]any) {
			rules := make([]any, hosts)
			for n := range rules {
				rules[n] = map[string]any{"host": fmt.Sprintf("over-%d-%d-%s", i, n, strings.Repeat("x", long))}
			}
			o["spec"] = map[string]any{"rules": rules}
		})
		// Two views, and the keys of what is beyond for as much again.
		l.Overfull, l.FindingBytes = true, 2*2*heldByBinding
		return l
	}},
	{"costly-deployments", 6, costly},
	// The same, until it is over: what was deferred is evaluated.
	{"costly-for-a-while", 2, func(rng *rand.Rand) *Attack {
		l := costly(rng)
		l.Back = true
		return l
	}},
	{"wordy-services", 4, func(rng *rand.Rand) *Attack {
		objects, long := 1500+rng.IntN(1000), 10_000+rng.IntN(10_000)
		l := crowd("services", "Service", objects, func(i int, o map[string]any) {
			metadata(o)["labels"] = map[string]any{"wordy": "true"}
			o["spec"] = map[string]any{"externalName": fmt.Sprintf("%d-%s", i, strings.Repeat("x", long))}
		})
		l.FindingBytes = heldByBinding
		return l
	}},
	{"many-violations", 4, func(rng *rand.Rand) *Attack {
		objects, long := 500+rng.IntN(1500), 1+rng.IntN(50_000)
		return crowd("services", "Service", objects, func(i int, o map[string]any) {
			metadata(o)["labels"] = map[string]any{"bad": "true"}
			o["spec"] = map[string]any{"externalName": fmt.Sprintf("%d-%s", i, strings.Repeat("x", min(long, 20_000_000/objects)))}
		})
	}},
}

// crowd shows objects that there are not.
func crowd(resource, kind string, n int, fill func(i int, o map[string]any)) *Attack {
	return &Attack{Extra: func(c *Call, yield func(map[string]any) bool) {
		if c.Resource != resource {
			return
		}
		for i := range n {
			o := object(c, kind, "default", fmt.Sprintf("crowd-%d", i))
			if fill != nil {
				fill(i, o)
			}
			if !yield(o) {
				return
			}
		}
	}}
}

func numbered(prefix string, n int, value string) map[string]any {
	out := make(map[string]any, n)
	for i := range n {
		out[fmt.Sprintf("%s%d", prefix, i)] = fmt.Sprintf("%s%d", value, i)
	}
	return out
}

// noise is text that does not compress well.
func noise(seed uint64, size int) string {
	rng := rand.New(rand.NewPCG(seed, 1)) // a mix, not a secret
	b := make([]byte, size)
	for i := range b {
		b[i] = byte('0' + rng.IntN(64))
		if b[i] == '\\' {
			b[i] = 'z'
		}
	}
	return string(b)
}

// costly shows Deployments whose evaluation takes more than it may.
func costly(rng *rand.Rand) *Attack {
	objects, containers := 12+rng.IntN(20), 1500+rng.IntN(2000)
	return crowd("deployments", "Deployment", objects, func(_ int, o map[string]any) {
		var all []any
		for n := range containers {
			all = append(all, map[string]any{"name": fmt.Sprintf("c%d", n), "image": fmt.Sprintf("i%d", n)})
		}
		o["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": all}}}
	})
}
