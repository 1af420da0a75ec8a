package module_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/test/seed"
)

// evaluated is what a query gives for an object, as text; errors are their kind.
func evaluated(t testing.TB, q rego.PreparedEvalQuery, object ast.Value, kind string) string {
	t.Helper()
	input := [][2]*ast.Term{
		ast.Item(ast.StringTerm("ref"), ast.ObjectTerm(
			ast.Item(ast.StringTerm("kind"), ast.StringTerm(kind)), ast.Item(ast.StringTerm("name"), ast.StringTerm("a")))),
		ast.Item(ast.StringTerm("parameters"), ast.ObjectTerm()),
	}
	if object != nil {
		input = append(input, ast.Item(ast.StringTerm("object"), ast.NewTerm(object)))
	}
	rs, err := q.Eval(t.Context(), rego.EvalParsedInput(ast.NewObject(input...)))
	if err != nil {
		// Messages of builtins quote no content; locations say where it ended.
		return "error: " + err.Error()
	}
	if len(rs) == 0 {
		return "undefined"
	}
	text, err := json.Marshal(rs[0].Expressions[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func prepare(t testing.TB, set *module.Set, query string) rego.PreparedEvalQuery {
	t.Helper()
	q, err := rego.New(rego.Compiler(set.Compiler), rego.Query(query), rego.StrictBuiltinErrors(true)).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// samePruned checks that a query under a mask gives what it gives without.
func samePruned(t testing.TB, q rego.PreparedEvalQuery, m *mask.Mask, body []byte, kind, text string) bool {
	t.Helper()
	whole, err := document.Value(body, mask.Whole())
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	pruned, err := document.Value(body, m)
	if err != nil {
		t.Fatal(err)
	}
	want, got := evaluated(t, q, whole, kind), evaluated(t, q, pruned, kind)
	if got != want {
		t.Errorf("object %s\npruned to %v by %v\ngives %s\nwant  %s\n%s", body, pruned, m, got, want, text)
		return false
	}
	return want != "[]" && want != "undefined"
}

// writer writes random Rego about objects whose keys are a, b and c.
type writer struct {
	r      *rand.Rand
	vars   []string // of the body
	unused map[string]bool
	next   int
	fns    int // functions and rules that there are
	depth  int
}

func (w *writer) pick(of ...string) string { return of[w.r.IntN(len(of))] }

func (w *writer) fresh() string {
	w.next++
	return "v" + strconv.Itoa(w.next)
}

func (w *writer) declare(v string) { w.vars, w.unused[v] = append(w.vars, v), true }

func (w *writer) use() string {
	if len(w.vars) == 0 {
		return "input.object"
	}
	v := w.vars[w.r.IntN(len(w.vars))]
	delete(w.unused, v)
	return v
}

// ref writes a reference that iterates nothing.
func (w *writer) ref() string {
	base := "input.object"
	switch n := w.r.IntN(10); {
	case n < 6 && len(w.vars) > 0:
		base = w.use()
	case n == 6 && w.fns > 0:
		return fmt.Sprintf("f%d(%s)%s", w.r.IntN(w.fns), w.plain(), w.steps())
	case n == 7 && w.fns > 0:
		return fmt.Sprintf("r%d%s", w.r.IntN(w.fns), w.steps())
	case n == 8 && w.fns > 0:
		return fmt.Sprintf("o%d%s", w.r.IntN(w.fns), w.steps())
	}
	return base + w.steps()
}

func (w *writer) plain() string {
	if len(w.vars) > 0 && w.r.IntN(3) > 0 {
		return w.use() + w.steps()
	}
	return "input.object" + w.steps()
}

func (w *writer) steps() string {
	var b strings.Builder
	for range w.r.IntN(3) {
		switch n := w.r.IntN(12); {
		case n == 0:
			b.WriteString("[0]")
		case n == 1 && len(w.vars) > 0:
			b.WriteString("[" + w.use() + "]")
		case n == 2:
			b.WriteString("[_]")
		default:
			b.WriteString("." + w.pick("a", "b", "c"))
		}
	}
	return b.String()
}

func (w *writer) body(n int) string {
	var lines []string
	for range n {
		lines = append(lines, w.expr())
	}
	return strings.Join(lines, "\n\t")
}

// nested writes what stands in a comprehension or every: its variables are its own.
func (w *writer) nested(collection string, write func(v, domain string) string) string {
	if w.depth > 1 {
		return collection
	}
	w.depth++
	vars, unused := w.vars, w.unused
	w.vars, w.unused = append([]string{}, vars...), map[string]bool{}
	v, domain := w.fresh(), w.plain()
	w.declare(v)
	out := write(v, domain)
	for u := range w.unused {
		out = strings.Replace(out, "#", u+"; #", 1)
	}
	w.depth--
	w.vars, w.unused = vars, unused
	return strings.Replace(out, "; #", "", 1)
}

func (w *writer) expr() string {
	v := w.fresh()
	line := ""
	switch w.r.IntN(24) {
	case 0, 1, 2:
		line = v + " := " + w.ref()
	case 3, 4, 5:
		line = "some " + v + " in " + w.ref()
	case 6:
		k := w.fresh()
		line = "some " + k + ", " + v + " in " + w.ref()
		defer w.declare(k)
	case 7:
		return w.ref() + w.pick(" == ", " != ", " < ") + w.pick("1", `"x"`, "true", w.plain())
	case 8:
		return "not " + w.plainGround()
	case 9:
		return w.plain() + " in " + w.ref()
	case 10:
		line = v + " := count(" + w.ref() + ")"
	case 11:
		line = v + " := object.get(" + w.ref() + ", " + w.pick(`"a"`, `"b"`, `["a", "b"]`, `["a", 0]`) + ", " + w.pick("1", "{}", w.plain()) + ")"
	case 12:
		line = v + " := array.concat(" + w.ref() + ", " + w.ref() + ")"
	case 13:
		line = v + " := object.union(" + w.ref() + ", " + w.ref() + ")"
	case 14:
		return w.pick("is_object(", "is_array(", "is_string(") + w.ref() + ")"
	case 15:
		line = v + " := " + w.nested(w.ref(), func(x, domain string) string { return "[" + x + w.steps() + " | some " + x + " in " + domain + "; #]" })
	case 16:
		line = v + " := " + w.nested(w.ref(), func(x, domain string) string { return "{" + x + w.steps() + " | some " + x + " in " + domain + "; #}" })
	case 17:
		line = v + " := " + w.nested(w.ref(), func(x, domain string) string {
			return "{" + w.pick(`"k"`, x+".a", "k") + ": " + x + " | some k, " + x + " in " + domain + "; k != 7; #}"
		})
	case 18:
		return w.nested("true", func(x, domain string) string {
			return "every " + x + " in " + domain + " { " + x + w.steps() + w.pick("", " == 1", " == "+w.plain()) + " }"
		})
	case 19:
		a := w.fresh()
		line = "[" + a + ", " + v + "] = " + w.ref()
		defer w.declare(a)
	case 20:
		line = v + " = " + w.ref() + "\n\t" + v + " = " + w.ref()
	case 21:
		line = "some " + v + " in [" + w.plain() + ", " + w.plain() + "]"
	case 22:
		line = v + " := {\"a\": " + w.plain() + ", \"b\": [" + w.plain() + "]}"
	case 23:
		line = "walk(" + w.plain() + ", [_, " + v + "])"
	}
	w.declare(v)
	return line
}

func (w *writer) plainGround() string {
	return "input.object." + w.pick("a", "b", "c") + w.pick("", ".a", ".b.c", " == 1")
}

// scope starts the body of another rule.
func (w *writer) scope(vars ...string) {
	w.vars, w.unused, w.depth = nil, map[string]bool{}, 0
	for _, v := range vars {
		w.declare(v)
	}
}

// rest uses what the body has declared and not used.
func (w *writer) rest() string {
	var b strings.Builder
	for _, v := range w.vars {
		if w.unused[v] {
			b.WriteString("\n\t" + v)
		}
	}
	return b.String()
}

func (w *writer) policy() string {
	var b strings.Builder
	b.WriteString(strings.Replace(header, `["Pod"]`, `["A", "B"]`, 1))
	for i := range w.r.IntN(3) {
		for range 1 + w.r.IntN(2) {
			w.scope("x")
			guard := w.pick("", "input.ref.kind == \"A\"\n\t", "x.a == 1\n\t", "x.a == 2\n\t")
			body := guard + w.body(w.r.IntN(2))
			value := w.plain()
			fmt.Fprintf(&b, "f%d(x) := %s if {\n\tx\n\t%s%s\n}", i, value, body, w.rest())
			if w.r.IntN(3) == 0 {
				fmt.Fprintf(&b, " else := x.%s if x.b", w.pick("a", "b", "c"))
			}
			b.WriteString("\n\n")
			w.scope()
			body = w.body(1 + w.r.IntN(2))
			guard = w.pick("", "input.ref.kind == \"A\"\n\t", "input.ref.kind == \"B\"\n\t")
			value = w.plain()
			fmt.Fprintf(&b, "r%d := %s if {\n\t%s%s%s\n}\n\n", i, value, guard, body, w.rest())
			w.scope()
			body = w.body(1 + w.r.IntN(2))
			value = w.plain()
			fmt.Fprintf(&b, "o%d%s\n\t%s%s\n}\n\n", i, w.pick(" contains "+value+" if {", "[k] := "+value+" if {\n\tsome k in [\"a\", \"b\"]"), body, w.rest())
		}
		w.fns = i + 1
	}
	for range 1 + w.r.IntN(2) {
		w.scope()
		body := w.body(1 + w.r.IntN(4))
		value := w.pick(`"x"`, `"x"`, w.plain())
		fmt.Fprintf(&b, "violation contains {\"msg\": %s} if {\n\t%s%s\n}\n\n", value, body, w.rest())
	}
	w.scope()
	body := w.body(1 + w.r.IntN(3))
	value := w.pick(`"x"`, w.plain())
	fmt.Fprintf(&b, "view.v[input.ref.name] contains %s if {\n\t%s%s\n}\n", value, body, w.rest())
	return b.String()
}

// randomValue writes a random value as canonical JSON.
func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(10); {
	case depth == 0 || n < 3:
		return []any{1, 2, "x", "a", true, false, nil, "b"}[r.IntN(8)]
	case n < 5:
		list := []any{}
		for range r.IntN(4) {
			list = append(list, randomValue(r, depth-1))
		}
		return list
	}
	m := map[string]any{}
	for _, key := range []string{"a", "b", "c"} {
		if r.IntN(4) > 0 {
			m[key] = randomValue(r, depth-1)
		}
	}
	return m
}

func TestAnalysis_PruningChangesNoResultOfRandomPolicies(t *testing.T) {
	policies := 1500
	if n, err := strconv.Atoi(os.Getenv("POLICIES")); err == nil {
		policies = n
	}
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	good, telling, whole := 0, 0, 0
	for range policies {
		text := (&writer{r: r, unused: map[string]bool{}}).policy()
		set, err := load(t, "p.rego", text)
		if err != nil {
			continue
		}
		good++
		p := set.Packages[0]
		if p.Reads.Object != nil && p.Reads.Object.All {
			whole++
		}
		violation, view := prepare(t, set, "data.p.violation"), prepare(t, set, "data.p.view.v")
		for range 8 {
			m, _ := randomValue(r, 4).(map[string]any)
			for key := range map[string]bool{"a": true, "b": true, "c": true} {
				if m != nil && r.IntN(3) > 0 {
					m[key] = randomValue(r, 4)
				}
			}
			body, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			kind := []string{"A", "B"}[r.IntN(2)]
			if samePruned(t, violation, p.Reads.Object, body, kind, text) {
				telling++
			}
			samePruned(t, view, p.View("v").Mask, body, kind, text)
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d of %d policies load; %d evaluations have findings; %d read the object whole", good, policies, telling, whole)
	if good < policies/20 || telling < good/4 || whole > good*3/4 {
		t.Error("the policies are too poor to show anything")
	}
}

// corpus are real objects, beside the repository.
const corpus = "../../../../../shared/corpus/*.jsonl"

func TestAnalysis_PruningChangesNoResultOfRealObjects(t *testing.T) {
	files, err := filepath.Glob(corpus)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("no corpus of real objects beside the repository")
	}
	set, err := load(t, "p.rego", realistic)
	if err != nil {
		t.Fatal(err)
	}
	p := set.Packages[0]
	t.Logf("reads %v", p.Reads.Object)
	q := prepare(t, set, "data.p.violation")
	telling := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var o map[string]any
			if err := json.Unmarshal(line, &o); err != nil {
				t.Fatal(err)
			}
			var canonical bytes.Buffer
			enc := json.NewEncoder(&canonical)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(o); err != nil {
				t.Fatal(err)
			}
			kind, _ := o["kind"].(string)
			if samePruned(t, q, p.Reads.Object, bytes.TrimSpace(canonical.Bytes()), kind, "") {
				telling++
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d objects have violations", telling)
	if telling < 100 {
		t.Error("the policy finds too little to show anything")
	}
}

// realistic is a policy as people write them.
const realistic = `# METADATA
# title: Pods
# description: What pods may not do.
# custom:
#   severity: high
#   kinds: ["*"]
package p

pod_spec := input.object.spec if {
	input.ref.kind == "Pod"
}

pod_spec := input.object.spec.template.spec if {
	input.ref.kind == "Deployment"
}

pod_spec := input.object.spec.template.spec if {
	input.ref.kind == "StatefulSet"
}

containers := array.concat(object.get(pod_spec, "containers", []), object.get(pod_spec, "initContainers", []))

violation contains {"msg": sprintf("%s uses :latest", [c.name])} if {
	some c in containers
	latest(c.image)
}

violation contains {"msg": sprintf("%s has no memory limit", [c.name])} if {
	some c in containers
	not c.resources.limits.memory
}

violation contains {"msg": "no owner"} if {
	not input.object.metadata.labels["app.kubernetes.io/part-of"]
	not input.object.metadata.annotations.owner
}

violation contains {"msg": sprintf("hostPath %s", [v.name])} if {
	some v in pod_spec.volumes
	v.hostPath
}

violation contains {"msg": sprintf("%s adds %s", [c.name, capability])} if {
	some c in pod_spec.containers
	some capability in object.get(c, ["securityContext", "capabilities", "add"], [])
	not capability in {"NET_BIND_SERVICE"}
}

violation contains {"msg": "owned twice"} if {
	count([1 | some o in input.object.metadata.ownerReferences; o.controller]) > 1
}

latest(image) if not contains(image, ":")

latest(image) if endswith(image, ":latest")
`
