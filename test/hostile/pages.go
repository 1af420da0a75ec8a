package hostile

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
)

// pageClasses attack with pages of lists. Where watches with a list are refused, pages
// are requested.
var pageClasses = []Class{
	{"no-streaming", 3, func(rng *rand.Rand) *Attack {
		l := withoutStreaming(&Attack{})
		l.Exact, l.Complete, l.Back = true, true, true
		return l
	}},
	{"page-order", 3, func(rng *rand.Rand) *Attack {
		l := withoutStreaming(&Attack{Page: items(func(c *Call, all []any) []any {
			c.Rand("order").Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			return all
		})})
		l.Exact = true
		return l
	}},
	{"page-twice", 3, func(rng *rand.Rand) *Attack {
		return withoutStreaming(&Attack{Page: items(func(_ *Call, all []any) []any { return append(all, all...) })})
	}},
	{"page-garbage", 3, func(rng *rand.Rand) *Attack {
		with := one[any](rng, nil, "x", 5, []any{}, map[string]any{})
		return withoutStreaming(&Attack{Page: items(func(_ *Call, all []any) []any { return append([]any{with}, all...) })})
	}},
	{"page-items", 2, func(rng *rand.Rand) *Attack {
		with := one[any](rng, nil, "x", 5, map[string]any{}, map[string]any{"a": 5})
		return withoutStreaming(&Attack{Page: func(_ *Call, list map[string]any) { list["items"] = with }})
	}},
	{"continue-loops", 4, func(rng *rand.Rand) *Attack {
		token := one(rng, "again", strings.Repeat("t", 100_000), "\x00", "..")
		return &Attack{Answer: func(w http.ResponseWriter, r *http.Request, c *Call) bool {
			if c.Verb == WatchList {
				answerStatus(w, 422, "Invalid", "sendInitialEvents is forbidden")
				return true
			}
			if c.Verb == List { // the member knows nothing of the token
				q := r.URL.Query()
				q.Del("continue")
				r.URL.RawQuery = q.Encode()
			}
			return false
		}, Page: func(_ *Call, list map[string]any) {
			metadata(list)["continue"], metadata(list)["remainingItemCount"] = token, 1
		}}
	}},
	{"page-versions", 4, func(rng *rand.Rand) *Attack {
		version := one[any](rng, "", "0", "-1", "x", "18446744073709551616", 5, nil, strings.Repeat("9", 100_000), "1 2")
		return withoutStreaming(&Attack{Page: func(_ *Call, list map[string]any) { metadata(list)["resourceVersion"] = version }})
	}},
	{"page-kind", 2, func(rng *rand.Rand) *Attack {
		kind, version := one[any](rng, "SecretList", "Pod", "", nil, "Status"), one[any](rng, "v1", "bogus/v9", "", nil)
		return withoutStreaming(&Attack{Page: func(_ *Call, list map[string]any) { list["kind"], list["apiVersion"] = kind, version }})
	}},
	{"other-kinds", 5, func(rng *rand.Rand) *Attack {
		kind, share := one(rng, "Secret", "Pod", "ConfigMap", "Zzz"), rng.IntN(2) == 0
		return &Attack{Extra: func(c *Call, yield func(map[string]any) bool) {
			for i := range 20 {
				o := object(c, kind, "default", fmt.Sprintf("other-%d", i))
				if share {
					o["apiVersion"] = "v1"
				}
				yield(o)
			}
		}}
	}},
	{"other-namespaces", 3, func(rng *rand.Rand) *Attack {
		namespace := one(rng, "kube-system", "", "..", "a/b", strings.Repeat("n", 1000))
		return someObjects(rng, func(_ *Call, o map[string]any) { metadata(o)["namespace"] = namespace })
	}},
}

// items changes the items of a page.
func items(change func(*Call, []any) []any) func(*Call, map[string]any) {
	return func(c *Call, list map[string]any) {
		all, _ := list["items"].([]any)
		list["items"] = change(c, all)
	}
}

// withoutStreaming refuses watches with a list, as older servers do.
func withoutStreaming(l *Attack) *Attack {
	l.Answer = func(w http.ResponseWriter, _ *http.Request, c *Call) bool {
		if c.Verb != WatchList {
			return false
		}
		answerStatus(w, 422, "Invalid", "sendInitialEvents is forbidden")
		return true
	}
	return l
}
