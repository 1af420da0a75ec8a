package enforce

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/seed"
)

// generated is a remedy of random fields, and what it assigns.
type generated struct {
	intent *remediate.Intent
	all    []assignment
}

// generate returns a remedy: an apply, a merge patch or a JSON patch.
func generate(random *rand.Rand, n int) generated {
	g := generated{intent: &remediate.Intent{Message: fmt.Sprint("m", n), Subject: policy.Subject{Ref: policy.Ref{Member: "fleet/a", Kind: "Pod", Namespace: "shop", Name: fmt.Sprint("o", n)}}}}
	if random.IntN(3) == 0 {
		g.patch(random)
		return g
	}
	object := map[string]any{}
	for range 1 + random.IntN(3) {
		path, value := randomPath(random), random.IntN(2)
		if put(object, path, value) {
			g.all = append(g.all, assignment{path, fmt.Sprint(value), true})
		}
	}
	slices.SortFunc(g.all, func(a, b assignment) int { return slices.Compare(a.path, b.path) })
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	g.intent.Remedy = policy.Remedy{Action: "patch", Patch: text}
	if random.IntN(2) == 0 {
		g.intent.Remedy = policy.Remedy{Action: "apply", Object: text}
	}
	return g
}

// patch makes it a JSON patch, which may set a field several times.
func (g *generated) patch(random *rand.Rand) {
	var ops []map[string]any
	set := func(path []string, value string) {
		g.all = slices.DeleteFunc(g.all, func(a assignment) bool { return slices.Equal(a.path, path) })
		g.all = append(g.all, assignment{path, value, false})
	}
	for range 1 + random.IntN(4) {
		path, from, value := randomPath(random), randomPath(random), random.IntN(2)
		op := map[string]any{"path": "/" + strings.Join(path, "/")}
		switch random.IntN(6) {
		case 0:
			op["op"] = "remove"
			set(path, "null")
		case 1:
			op["op"], op["from"] = "move", "/"+strings.Join(from, "/")
			set(from, "null")
			set(path, "move /"+strings.Join(from, "/"))
		case 2: // of an element, and of an object to add fields to: they assign nothing
			ops = append(ops, map[string]any{"op": "add", "path": op["path"].(string) + "/-", "value": value})
			op["op"], op["value"] = "add", map[string]any{}
		default:
			op["op"], op["value"] = "replace", value
			set(path, fmt.Sprint(value))
		}
		ops = append(ops, op)
	}
	text, err := json.Marshal(ops)
	if err != nil {
		panic(err)
	}
	g.intent.Remedy = policy.Remedy{Action: "patch", Patch: text}
}

func randomPath(random *rand.Rand) []string {
	var path []string
	for range 1 + random.IntN(3) {
		path = append(path, string(rune('a'+random.IntN(3))))
	}
	return path
}

// put sets a field that is not set, and neither is one above or below it.
func put(object map[string]any, path []string, value any) bool {
	for _, name := range path[:len(path)-1] {
		next, is := object[name].(map[string]any)
		if object[name] != nil && !is {
			return false
		}
		if next == nil {
			next = map[string]any{}
			object[name] = next
		}
		object = next
	}
	last := path[len(path)-1]
	if object[last] != nil {
		return false
	}
	object[last] = value
	return true
}

// allPairs is the rule: each assignment is compared with all those of the remedies before.
func allPairs(list []generated) string {
	for n, g := range list {
		for _, a := range g.all {
			var first *remediate.Intent
			depth := 0
			for _, other := range list[:n] {
				for _, b := range other.all {
					common := min(len(a.path), len(b.path))
					if contradict(a, b) && (first == nil || first == other.intent && common < depth) {
						first, depth = other.intent, common
					}
				}
			}
			if first != nil {
				return contradiction(strings.Join(a.path[:depth], "."), first, g.intent)
			}
		}
	}
	return ""
}

func contradict(a, b assignment) bool {
	if len(a.path) > len(b.path) {
		a, b = b, a
	}
	switch {
	case !slices.Equal(a.path, b.path[:len(a.path)]):
		return false
	case len(a.path) == len(b.path):
		return a.value != b.value
	}
	return a.fixed || b.fixed
}

// TestFindContradiction_IsThatOfAllPairs: the first one, whatever the remedies assign.
func TestFindContradiction_IsThatOfAllPairs(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(seed.Of(t), 1)) // A test's.
	contradicting := 0
	const histories = 10_000
	for range histories {
		var list []generated
		var distinct []*remediate.Intent
		for n := range 2 + random.IntN(5) {
			list = append(list, generate(random, n))
			distinct = append(distinct, list[n].intent)
		}
		got, want := findContradiction(distinct), allPairs(list)
		if got != want {
			for _, i := range distinct {
				t.Logf("%s %s%s", i.Remedy.Action, i.Remedy.Object, i.Remedy.Patch)
			}
			t.Fatalf("%q, want %q", got, want)
		}
		if want != "" {
			contradicting++
		}
	}
	if contradicting < histories/10 || contradicting > histories*9/10 {
		t.Errorf("%d of %d contradict: that compares little", contradicting, histories)
	}
}

// others are intents of so many subjects, each of which sets another field of one target.
func others(n int, message string) []*remediate.Intent {
	var out []*remediate.Intent
	for i := range n {
		out = append(out, &remediate.Intent{
			Message: fmt.Sprintf("%06d %s", i, message),
			Subject: policy.Subject{Ref: policy.Ref{Member: "fleet/a", Kind: "Pod", Namespace: "shop", Name: fmt.Sprint("o", i)}},
			Remedy:  policy.Remedy{Action: "patch", Patch: fmt.Appendf(nil, `{"spec":{"template":{"f%d":{"enabled":true}}}}`, i)},
		})
	}
	return out
}

// TestCombine_BoundsMessages: however many violations correct one target, and whatever they say.
func TestCombine_BoundsMessages(t *testing.T) {
	t.Parallel()
	out, deferred := combine(others(1000, "a message"))
	if len(out.Message) > maxMessage || !strings.HasPrefix(out.Message, "000000 a message; 000001 a message; ") || !strings.HasSuffix(out.Message, "…") {
		t.Errorf("%d bytes: %s", len(out.Message), out.Message)
	}
	if deferred != 0 || out.Refused != "" || strings.Count(string(out.Remedy.Patch), "enabled") != 1000 {
		t.Errorf("%d deferred, refused %q: %s", deferred, out.Refused, out.Remedy.Patch)
	}
	later := others(1000, "a message")
	for n, i := range later {
		i.Remedy.Patch = fmt.Appendf(nil, `[{"op":"replace","path":"/spec/f%d","value":1}]`, n)
	}
	if out, deferred := combine(later); len(out.Message) > maxMessage || !strings.Contains(out.Message, "later, to patch") || deferred != 999 {
		t.Errorf("%d deferred, %d bytes: %s", deferred, len(out.Message), out.Message)
	}
	long := others(2, strings.Repeat("ä", 5000))
	name := strings.Repeat("n", 5000)
	long[0].Remedy.Patch = fmt.Appendf(nil, `{%q:1}`, name)
	long[1].Remedy.Patch = fmt.Appendf(nil, `{%q:2}`, name)
	if out, _ := combine(long); len(out.Refused) > maxMessage || !strings.Contains(out.Refused, "shop/o0") || !strings.Contains(out.Refused, "shop/o1") {
		t.Errorf("%d bytes: %s", len(out.Refused), out.Refused)
	}
}

// BenchmarkCombine is of many subjects that correct one target: each change of one of them
// combines them all again.
func BenchmarkCombine(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			list := others(n, "the field is not set")
			for b.Loop() {
				if out, _ := combine(list); out.Refused != "" {
					b.Fatal(out.Refused)
				}
			}
		})
	}
}
