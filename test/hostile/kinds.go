package hostile

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
)

// rewound is by how much resourceVersions go back.
const rewound = 1 << 40

// kindClasses are true of each object, and yet what a member serves of a kind is more
// than it seems, or goes back.
var kindClasses = []Class{
	// It changes nothing, so that only what a reader does has effects.
	{"quiet", 1, func(*rand.Rand) *Attack { return &Attack{Exact: true, Complete: true} }},
	// A server of an older copy: what came since is gone, and resourceVersions are small
	// again. No watch ends because it is too old.
	{"went-back", 5, func(*rand.Rand) *Attack {
		ahead := func(o map[string]any) {
			meta := metadata(o)
			if version, ok := meta["resourceVersion"].(string); ok {
				if n, err := strconv.ParseInt(version, 10, 64); err == nil {
					meta["resourceVersion"] = strconv.FormatInt(n+rewound, 10)
				}
			}
		}
		lost := crowd("configmaps", "ConfigMap", 20, func(_ int, o map[string]any) { metadata(o)["resourceVersion"] = strconv.Itoa(1001) })
		return &Attack{
			Back: true,
			Answer: func(_ http.ResponseWriter, r *http.Request, _ *Call) bool {
				q := r.URL.Query()
				if n, err := strconv.ParseInt(q.Get("resourceVersion"), 10, 64); err == nil && n >= rewound {
					q.Set("resourceVersion", strconv.FormatInt(n-rewound, 10))
					r.URL.RawQuery = q.Encode()
				}
				return false
			},
			Object: func(_ *Call, o map[string]any) { ahead(o) },
			Page:   func(_ *Call, list map[string]any) { ahead(list) },
			Event: func(_ *Call, e map[string]any) []map[string]any {
				if o, ok := e["object"].(map[string]any); ok && e["type"] == "BOOKMARK" {
					ahead(o)
				}
				return []map[string]any{e}
			},
			Extra: func(c *Call, yield func(map[string]any) bool) {
				lost.Extra(c, func(o map[string]any) bool { ahead(o); return yield(o) })
			},
			Then: &Attack{Answer: func(_ http.ResponseWriter, r *http.Request, c *Call) bool {
				q := r.URL.Query()
				if n, err := strconv.ParseInt(q.Get("resourceVersion"), 10, 64); err == nil && n >= rewound && c.Objects() {
					q.Del("resourceVersion") // it goes on from where it is
					r.URL.RawQuery = q.Encode()
				}
				return false
			}, Object: func(*Call, map[string]any) {}},
		}
	}},
	// A server of another version has other content of objects that nobody has written,
	// and sends no watch an event of it.
	{"upgraded", 4, func(*rand.Rand) *Attack {
		return &Attack{
			Back: true, Object: defaulted, Then: &Attack{Object: func(*Call, map[string]any) {}},
			Document: func(c *Call, doc map[string]any) {
				if c.Verb == Version {
					doc["gitVersion"] = "v1.34.99"
				}
			},
		}
	}},
	// So has a kind whose definition has changed. What defines it claims a kind that
	// there is.
	{"redefined", 4, func(*rand.Rand) *Attack {
		definition := func(c *Call, generation int) map[string]any {
			o := object(c, "CustomResourceDefinition", "", "configmaps.hostile")
			metadata(o)["generation"], metadata(o)["resourceVersion"] = generation, strconv.Itoa(rewound+generation)
			o["spec"] = map[string]any{"group": "", "scope": "Namespaced", "names": map[string]any{"kind": "ConfigMap", "plural": "configmaps"}, "versions": []any{}}
			return o
		}
		of := func(c *Call) bool { return c.Resource == "customresourcedefinitions" }
		return &Attack{
			Back: true,
			Object: func(c *Call, o map[string]any) {
				if c.Resource == "configmaps" {
					defaulted(c, o)
				}
			},
			Extra: func(c *Call, yield func(map[string]any) bool) {
				if of(c) {
					yield(definition(c, 1))
				}
			},
			Then: &Attack{Flood: func(c *Call, yield func(map[string]any) bool) {
				if of(c) {
					yield(map[string]any{"type": "MODIFIED", "object": definition(c, 2)})
				}
			}},
		}
	}},
	// What is requested in protobuf comes in JSON, and says so.
	{"in-json", 4, func(*rand.Rand) *Attack {
		return &Attack{Object: func(*Call, map[string]any) {}, Exact: true, Complete: true, Late: true, Back: true}
	}},
	// A kind that is larger than a response may be, of a server without streaming lists.
	{"large-kind", 5, func(*rand.Rand) *Attack {
		const objects, size = 24, 400_000
		return &Attack{Holds: map[string]int{"ConfigMap": objects}, Answer: func(w http.ResponseWriter, r *http.Request, c *Call) bool {
			if c.Verb == WatchList {
				answerStatus(w, 422, "Invalid", "sendInitialEvents is forbidden")
				return true
			}
			if c.Resource != "configmaps" || c.Namespace != "" || !c.Objects() {
				return false
			}
			if c.Verb == Watch {
				return emptyList(c.Resource)(w, r, c)
			}
			q := r.URL.Query()
			from, _ := strconv.Atoi(q.Get("continue")) //nolint:errcheck // none is 0
			to := objects
			// As API servers have it: a list at any resourceVersion but the newest is
			// answered from a cache, without regard to a limit.
			if limit, err := strconv.Atoi(q.Get("limit")); err == nil && limit > 0 && q.Get("resourceVersion") == "" {
				to = min(objects, from+limit)
			}
			meta := map[string]any{"resourceVersion": "1001"}
			if to < objects {
				meta["continue"] = strconv.Itoa(to)
			}
			items := []any{}
			for i := from; i < to; i++ {
				o := object(c, "ConfigMap", "default", fmt.Sprintf("large-%d", i))
				metadata(o)["annotations"] = map[string]any{"noise": noise(uint64(i), size)}
				items = append(items, o)
			}
			w.Header().Set("Content-Type", "application/json")
			// The client may be gone, which is all that can fail.
			_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": meta, "items": items})
			return true
		}}
	}},
	// Events come without end.
	{"many-events", 5, func(rng *rand.Rand) *Attack {
		n, long := 10_000+rng.IntN(5000), 300+rng.IntN(700)
		return crowd("events", "Event", n, func(i int, o map[string]any) {
			metadata(o)["resourceVersion"] = strconv.Itoa(1001 + i)
			o["involvedObject"] = map[string]any{"kind": "Pod", "namespace": "default", "name": fmt.Sprintf("pod-%d", i)}
			o["reason"], o["type"], o["message"] = "Hostile", "Normal", noise(uint64(i), long)
		})
	}},
	// Each object costs some of its evaluation's time, within what it may, and all change
	// all the time: there is always another batch.
	{"slow-deployments", 4, func(*rand.Rand) *Attack {
		const objects, containers = 300, 120
		return &Attack{Endless: true, Flood: func(c *Call, yield func(map[string]any) bool) {
			if c.Resource != "deployments" {
				return
			}
			for turn := 0; ; turn++ {
				o := object(c, "Deployment", "default", fmt.Sprintf("slow-%d", turn%objects))
				all := make([]any, containers)
				for n := range all {
					all[n] = map[string]any{"name": fmt.Sprintf("c%d", n), "image": fmt.Sprintf("i%d-%d", n, turn)}
				}
				metadata(o)["resourceVersion"] = strconv.Itoa(2000 + turn)
				o["spec"] = map[string]any{
					"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
					"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{"containers": all}},
				}
				if !yield(map[string]any{"type": "MODIFIED", "object": o}) {
					return
				}
			}
		}}
	}},
}

// defaulted shows an object with what its server has added.
func defaulted(_ *Call, o map[string]any) {
	annotations, ok := metadata(o)["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		metadata(o)["annotations"] = annotations
	}
	annotations["hostile.test/defaulted"] = "before"
}
