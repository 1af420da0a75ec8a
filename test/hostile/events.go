package hostile

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// eventClasses attack with watch events.
var eventClasses = []Class{
	{"event-types", 3, func(rng *rand.Rand) *Attack {
		kind := one[any](rng, "UNKNOWN", "", nil, 5, "ERROR", "added", "BOOKMARK")
		return events(func(c *Call, e map[string]any, i int) []map[string]any {
			if i%3 == 0 {
				e["type"] = kind
			}
			return []map[string]any{e}
		})
	}},
	{"event-objects", 3, func(rng *rand.Rand) *Attack {
		object := one[any](rng, nil, "x", 5, []any{}, map[string]any{}, map[string]any{"kind": "Status", "apiVersion": "v1", "code": "x"})
		return events(func(_ *Call, e map[string]any, i int) []map[string]any {
			return []map[string]any{e, {"type": "MODIFIED", "object": object}}
		})
	}},
	{"event-versions", 5, func(rng *rand.Rand) *Attack {
		version := one[any](rng, "", "0", "1", "-5", "x", "18446744073709551615", "99999999999999999999999", 5, nil)
		return events(func(_ *Call, e map[string]any, i int) []map[string]any {
			if o, ok := e["object"].(map[string]any); ok && i%2 == 0 {
				metadata(o)["resourceVersion"] = version
			}
			return []map[string]any{e}
		})
	}},
	{"events-back", 4, func(rng *rand.Rand) *Attack {
		return &Attack{Flood: func(c *Call, yield func(map[string]any) bool) {
			for i := range 200 {
				o := object(c, "ConfigMap", "default", "backwards")
				metadata(o)["resourceVersion"] = fmt.Sprint(100_000 - i)
				if c.Resource != "configmaps" || !yield(map[string]any{"type": []string{"ADDED", "MODIFIED"}[min(i, 1)], "object": o}) {
					return
				}
			}
		}}
	}},
	{"events-twice", 2, func(*rand.Rand) *Attack {
		l := events(func(_ *Call, e map[string]any, _ int) []map[string]any { return []map[string]any{e, e} })
		l.Exact = true
		return l
	}},
	{"events-lost", 2, func(*rand.Rand) *Attack {
		return events(func(_ *Call, e map[string]any, i int) []map[string]any {
			if i%3 == 0 && e["type"] != "BOOKMARK" {
				return nil
			}
			return []map[string]any{e}
		})
	}},
	{"deleted", 3, func(*rand.Rand) *Attack {
		return events(func(_ *Call, e map[string]any, _ int) []map[string]any {
			if e["type"] == "BOOKMARK" {
				return []map[string]any{e}
			}
			return []map[string]any{{"type": "DELETED", "object": e["object"]}, e, {"type": "DELETED", "object": e["object"]}}
		})
	}},
	{"bookmarks", 4, func(rng *rand.Rand) *Attack {
		version := one[any](rng, "", "0", "1", "x", "18446744073709551616", nil, strings.Repeat("9", 1000))
		return &Attack{Event: func(_ *Call, e map[string]any) []map[string]any {
			if o, ok := e["object"].(map[string]any); ok && e["type"] == "BOOKMARK" {
				metadata(o)["resourceVersion"] = version
			}
			return []map[string]any{e}
		}}
	}},
	{"no-end", 3, func(*rand.Rand) *Attack {
		return &Attack{Event: func(_ *Call, e map[string]any) []map[string]any {
			if e["type"] == "BOOKMARK" {
				return nil
			}
			return []map[string]any{e}
		}}
	}},
	{"end-first", 3, func(*rand.Rand) *Attack {
		return &Attack{Event: func(c *Call, e map[string]any) []map[string]any {
			end := object(c, "ConfigMap", "", "")
			metadata(end)["annotations"] = map[string]any{"k8s.io/initial-events-end": "true"}
			return []map[string]any{{"type": "BOOKMARK", "object": end}, e}
		}}
	}},
	{"event-kinds", 5, func(rng *rand.Rand) *Attack {
		kind, version, namespace := one(rng, "Secret", "Pod", "Node", "Zzz"), one(rng, "v1", "apps/v1", "bogus/v9"), one(rng, "", "default", "kube-system")
		return events(func(c *Call, e map[string]any, i int) []map[string]any {
			o := object(c, kind, namespace, fmt.Sprintf("other-%d", i%50))
			o["apiVersion"] = version
			return []map[string]any{e, {"type": one(c.Rand(c.Path, fmt.Sprint(i)), "ADDED", "MODIFIED", "DELETED"), "object": o}}
		})
	}},
	{"line-huge", 3, func(rng *rand.Rand) *Attack {
		return &Attack{Flood: func(c *Call, yield func(map[string]any) bool) {
			if c.Resource == "configmaps" {
				o := object(c, "ConfigMap", "default", "huge")
				metadata(o)["annotations"] = map[string]any{"x": strings.Repeat("x", flood)}
				yield(map[string]any{"type": "ADDED", "object": o})
			}
		}}
	}},
}

// events changes events by their number in their watch, bookmarks included.
func events(change func(c *Call, e map[string]any, i int) []map[string]any) *Attack {
	return &Attack{Event: func(c *Call, e map[string]any) []map[string]any {
		c.events++
		return change(c, e, c.events)
	}}
}
