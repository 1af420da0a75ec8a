package compiled_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/test/seed"
)

// generated is a program with what it is evaluated on.
type generated struct {
	sources

	worlds   []world
	strict   bool
	indexing bool
}

// generate makes a program of choices.
func generate(c chooser) generated {
	g := &generator{chooser: c}
	p := generated{sources: g.program(), strict: g.chance(40), indexing: g.chance(40)}
	for range 3 {
		data := ast.NewObject([2]*ast.Term{ast.StringTerm("doc"), ast.NewTerm(g.document())}, [2]*ast.Term{ast.StringTerm("doc2"), ast.NewTerm(g.document())})
		p.worlds = append(p.worlds, world{g.document(), data})
	}
	return p
}

// compile compiles the modules, as OPA does.
func (s sources) compile() (*ast.Compiler, error) {
	modules := map[string]*ast.Module{}
	for i, text := range s.modules {
		name := fmt.Sprintf("m%d.rego", i)
		m, err := ast.ParseModuleWithOpts(name, text, ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: parseCapabilities})
		if err != nil {
			return nil, err
		}
		modules[name] = m
	}
	c := ast.NewCompiler().WithCapabilities(parseCapabilities)
	if c.Compile(modules); c.Failed() {
		return nil, c.Errors
	}
	return c, nil
}

// repaired compiles the modules, without the rules that OPA's compiler refuses.
func (s *sources) repaired() (c *ast.Compiler, err error) {
	for range 4 {
		if c, err = s.compile(); err == nil {
			return c, nil
		}
		var list ast.Errors
		if !errors.As(err, &list) {
			return nil, err
		}
		rows := map[int][]int{}
		for _, e := range list {
			if i := 0; e.Location != nil {
				if n, _ := fmt.Sscanf(e.Location.File, "m%d.rego", &i); n == 1 {
					rows[i] = append(rows[i], e.Location.Row)
				}
			}
		}
		s.modules = slices.Clone(s.modules)
		for i, r := range rows {
			s.modules[i] = withoutRules(s.modules[i], r)
		}
	}
	return nil, err
}

// withoutRules leaves out the definitions that have one of some rows.
func withoutRules(text string, rows []int) string {
	var kept, rule []string
	drop := false
	end := func() {
		if !drop {
			kept = append(kept, rule...)
		}
		rule, drop = nil, false
	}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || !strings.ContainsRune("\t }", rune(line[0])) {
			end()
		}
		rule = append(rule, line)
		drop = drop || slices.Contains(rows, i+1)
	}
	end()
	return strings.Join(kept, "\n")
}

// rules counts the definitions.
func (s sources) rules() (n int) {
	for _, text := range s.modules {
		for line := range strings.Lines(text) {
			if strings.ContainsRune("rd", rune(line[0])) {
				n++
			}
		}
	}
	return n
}

// tally counts what programs did.
type tally struct {
	programs, kept, written, left, queries, compiled, pairs, results, errors int
	outcomes                                                                 map[outcome]int
	refusals, deferrals, rejected                                            map[string]int
}

func newTally() *tally {
	return &tally{outcomes: map[outcome]int{}, refusals: map[string]int{}, deferrals: map[string]int{}, rejected: map[string]int{}}
}

// play compares both on one program. The difference is nil if there is none.
func (n *tally) play(t testing.TB, m *compiled.Machine, g generated) *difference {
	n.programs++
	rules := g.rules()
	c, err := g.repaired()
	if err != nil {
		n.reject(err)
		return nil
	}
	n.written += rules
	n.left += g.rules()
	n.kept++
	for _, text := range g.queries {
		p, err := newProgram(c, text, g.strict, g.indexing)
		if err != nil {
			n.reject(err)
			continue
		}
		n.queries++
		if p.refused != nil {
			n.refusals[p.refused.What]++
			continue
		}
		n.compiled++
		for _, w := range g.worlds {
			v := p.ask(t.Context(), m, w)
			n.count(v)
			if v.outcome == different {
				return &difference{sources{g.modules, []string{text}}, w, g.strict, g.indexing, v}
			}
		}
	}
	return nil
}

func (n *tally) reject(err error) {
	text := err.Error()
	text = regexp.MustCompile(`^.*?rego_`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`(var|arg) \w+`).ReplaceAllString(text, "$1")
	if os.Getenv("ORACLE_REJECTED") != "" {
		n.rejected[text]++
		return
	}
	n.rejected["-"]++
}

func (n *tally) count(v verdict) {
	n.pairs++
	n.outcomes[v.outcome]++
	if v.want.err != nil {
		n.errors++
	} else if len(v.want.solutions) > 0 && v.want.solutions[0] != "[set()]" && v.want.solutions[0] != "[{}]" {
		n.results++
	}
	if v.outcome == deferred {
		n.deferrals[v.why]++
	}
}

func share(n, of int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(of, 1))) }

func (n *tally) log(t *testing.T) {
	ok := n.pairs - n.errors
	t.Logf("%d programs, %s kept, with %s of their rules; %d queries, %s compiled; %d pairs: %s with results, %s with errors, %d beyond limits, %d differ; %s of those without errors are left to topdown",
		n.programs, share(n.kept, n.programs), share(n.left, n.written), n.queries, share(n.compiled, n.queries), n.pairs, share(n.results, n.pairs), share(n.errors, n.pairs),
		n.outcomes[limited], n.outcomes[different], share(n.outcomes[deferred], ok))
	for title, reasons := range map[string]map[string]int{"not compiled": n.refusals, "left to topdown": n.deferrals, "no program": nil} {
		for i, why := range byFrequency(reasons) {
			if i < 45 {
				t.Logf("%s: %6d %s", title, reasons[why], why)
			}
		}
	}
}

func byFrequency(m map[string]int) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
}

// maxExamples is how many differences of a kind are shown.
const maxExamples = 3

// randomly chooses at random.
func randomly(seed uint64) chooser { return chooser{rand: rand.New(rand.NewPCG(seed, 0))} }

// TestGenerated_AgreesWithTopdown: random programs give what they give with topdown.
// ORACLE_PROGRAMS is how many pairs of a program and an input are compared. A difference
// names the seed that its program is the first of.
func TestGenerated_AgreesWithTopdown(t *testing.T) {
	pairs := 20_000
	if text := os.Getenv("ORACLE_PROGRAMS"); text != "" {
		var err error
		if pairs, err = strconv.Atoi(text); err != nil {
			t.Fatalf("ORACLE_PROGRAMS: %v", err)
		}
	}
	first := seed.Of(t)
	var m compiled.Machine
	n := newTally()
	seen := map[string]int{}
	for s := first; n.pairs < pairs; s++ {
		d := n.play(t, &m, generate(randomly(s)))
		if d == nil {
			continue
		}
		if seen[d.verdict.why]++; seen[d.verdict.why] > maxExamples {
			continue
		}
		t.Errorf("SEED=%d\n%s", s, d.shrink(t, &m))
	}
	n.log(t)
	for why, times := range seen {
		t.Logf("%d differences like: %s", times, why)
	}
	if 2*n.kept < n.programs || 4*n.results < n.pairs {
		t.Error("too few programs are of use")
	}
}

// FuzzCompiled makes the choices of the generator by bytes.
func FuzzCompiled(f *testing.F) {
	f.Add([]byte("a program"))
	f.Add([]byte(strings.Repeat("\x07\x23\x00\xff\x31", 60)))
	f.Fuzz(func(t *testing.T, choices []byte) {
		var m compiled.Machine
		c := randomly(uint64(len(choices)))
		c.bytes = choices
		if d := newTally().play(t, &m, generate(c)); d != nil {
			t.Errorf("%s", d.shrink(t, &m))
		}
	})
}
