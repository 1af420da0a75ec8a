package hostile

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// objectClasses attack with objects.
var objectClasses = []Class{
	{"annotations-type", 5, func(rng *rand.Rand) *Attack {
		value := one[any](rng, "boom", 5, []any{}, []any{"a"}, map[string]any{"a": 5}, map[string]any{"a": nil}, map[string]any{"a": map[string]any{}}, true)
		return someObjects(rng, func(_ *Call, o map[string]any) { metadata(o)["annotations"] = value })
	}},
	{"labels-type", 4, func(rng *rand.Rand) *Attack {
		value := one[any](rng, "boom", 5, []any{}, map[string]any{"a": 5}, map[string]any{"a": nil}, map[string]any{"a": []any{}}, map[string]any{"": ""}, map[string]any{strings.Repeat("k", 100_000): "v"})
		return someObjects(rng, func(_ *Call, o map[string]any) { metadata(o)["labels"] = value })
	}},
	{"metadata-type", 3, func(rng *rand.Rand) *Attack {
		field := one(rng, "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "ownerReferences", "finalizers", "generation", "deletionTimestamp", "managedFields", "generateName")
		value := one[any](rng, nil, 5, "boom", []any{}, []any{5}, map[string]any{}, true, "", json.Number("1e999"), []any{map[string]any{"uid": 5, "name": []any{}}})
		return someObjects(rng, func(_ *Call, o map[string]any) { metadata(o)[field] = value })
	}},
	{"no-metadata", 2, func(rng *rand.Rand) *Attack {
		value := one[any](rng, nil, "x", 5, []any{})
		return someObjects(rng, func(_ *Call, o map[string]any) { o["metadata"] = value })
	}},
	{"api-version", 5, func(rng *rand.Rand) *Attack {
		version := one[any](rng, "bogus/v9", "a/b/c", "", "v9", "apps/v1", 5, nil, strings.Repeat("v", 300))
		return someObjects(rng, func(_ *Call, o map[string]any) { o["apiVersion"] = version })
	}},
	{"object-kind", 5, func(rng *rand.Rand) *Attack {
		kind := one[any](rng, "Secret", "Zzz", "", "Pod", "List", "Status", 5, nil, "Deployment.apps", "ConfigMap")
		return someObjects(rng, func(_ *Call, o map[string]any) { o["kind"] = kind })
	}},
	{"names", 4, func(rng *rand.Rand) *Attack {
		name := one(rng, strings.Repeat("n", 1<<20), "a/b", "..", "\x00", "a\nb", "%2e%2e", "", "ünïcödé", "\xff\xfe", "a?b=c", "A B")
		where := one(rng, "name", "namespace", "uid")
		return someObjects(rng, func(_ *Call, o map[string]any) { metadata(o)[where] = name })
	}},
	{"nesting", 4, func(rng *rand.Rand) *Attack {
		depth, list, field := one(rng, 50, 500, 5000, 9000), rng.IntN(2) == 0, one(rng, "spec", "status", "other")
		return someObjects(rng, func(_ *Call, o map[string]any) { o[field] = nested(depth, list) })
	}},
	{"number", 2, func(rng *rand.Rand) *Attack {
		number := one[any](rng, json.Number("1e999"), json.Number("-0"), json.Number("123456789012345678901234567890"), json.Number("1e-400"), json.Number("0."+strings.Repeat("1", 3000)))
		return someObjects(rng, func(_ *Call, o map[string]any) {
			metadata(o)["generation"] = number
			o["spec"] = map[string]any{"replicas": number, "containers": number}
		})
	}},
	{"spec-type", 4, func(rng *rand.Rand) *Attack {
		value := one[any](rng, "x", 5, []any{}, []any{nil}, nil, map[string]any{"containers": "x", "rules": 5, "template": []any{}, "nodeName": map[string]any{}})
		return someObjects(rng, func(_ *Call, o map[string]any) {
			for _, field := range []string{"spec", "status", "data"} {
				if _, has := o[field]; has {
					o[field] = value
				}
			}
		})
	}},
	{"one-uid", 2, func(rng *rand.Rand) *Attack {
		return someObjects(rng, func(_ *Call, o map[string]any) {
			meta := metadata(o)
			meta["uid"] = "one"
			meta["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": "one", "controller": true}}
		})
	}},
	{"marks-of-others", 3, func(rng *rand.Rand) *Attack {
		member := one(rng, "good/sim", "good/real", "good.sim", "evil/other")
		return someObjects(rng, func(_ *Call, o map[string]any) {
			metadata(o)["annotations"] = map[string]any{"federator.dev/member": member, "federator.dev/revision": "9", "federator.dev/redacted": "false"}
			metadata(o)["labels"] = map[string]any{"federator.dev/member": strings.ReplaceAll(member, "/", "."), "member.federator.dev/tier": "honest"}
		})
	}},
	{"other-body", 5, func(rng *rand.Rand) *Attack {
		seed := rng.Uint64()
		l := someObjects(rng, func(_ *Call, o map[string]any) {
			annotations, _ := metadata(o)["annotations"].(map[string]any)
			if annotations == nil {
				annotations = map[string]any{}
				metadata(o)["annotations"] = annotations
			}
			annotations["hostile.test/defaulted"] = fmt.Sprint(seed)
		})
		l.Back = true
		return l
	}},
}

// someObjects changes a share of all objects.
func someObjects(rng *rand.Rand, change func(*Call, map[string]any)) *Attack {
	share := one(rng, 0.1, 0.5, 1)
	return &Attack{Object: func(c *Call, o map[string]any) {
		if c.Rand("share", c.Path, nameOf(o)).Float64() < share {
			change(c, o)
		}
	}}
}

func nested(depth int, list bool) any {
	var v any = "deep"
	for range depth {
		if list {
			v = []any{v}
		} else {
			v = map[string]any{"d": v}
		}
	}
	return v
}
