package compiled_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/test/seed"
)

// readingPrograms is how many generated programs the reads of are compared.
const readingPrograms = 600

// TestReads_AreThoseOfTopdown compares what evaluations read: what an evaluation depends on is
// known by that.
func TestReads_AreThoseOfTopdown(t *testing.T) {
	n := readingPrograms
	if testing.Short() {
		n /= 10
	}
	base := seed.Of(t)
	compared, more := 0, 0
	for i := range uint64(n) {
		p := generate(rand.NewPCG(base, i))
		c, _, err := p.compile()
		if err != nil {
			continue
		}
		for j := range p.queries {
			of, wider, diff := p.readsDiffer(c, j)
			compared, more = compared+of, more+wider
			if diff == "" {
				continue
			}
			t.Errorf("program %d+%d reads otherwise:\n%s", base, i, p.shrinkReads(j))
			return
		}
	}
	t.Logf("the reads of %d evaluations that read are those of topdown, %d of them but for paths below a prefix that is read", compared, more)
	if compared < n/10 {
		t.Errorf("only %d evaluations read", compared)
	}
}

// readsDiffer evaluates a query with each input, and describes the first difference. It counts
// the evaluations that read, and those that agree but for paths below a prefix.
func (p *program) readsDiffer(c *ast.Compiler, query int) (compared, more int, diff string) {
	e, err := p.evaluation(c, query, 0)
	if err != nil {
		return 0, 0, ""
	}
	e.indexing = false
	program, err := e.compile()
	if err != nil {
		return 0, 0, ""
	}
	var m compiled.Machine
	for _, input := range p.inputs {
		e.input = ast.MustParseTerm(input)
		got, want := e.ofProgram(&m, program), e.ofTopdown()
		if got.err != nil || want.err != nil || len(want.reads)+len(got.reads) == 0 {
			continue
		}
		compared++
		a, b := pathsOf(c, got.reads), pathsOf(c, want.reads)
		if !slices.Equal(a, b) {
			more++
		}
		if x, y := uncovered(a, b), uncovered(b, a); len(x)+len(y) > 0 {
			return compared, more, fmt.Sprintf("query %s\ninput %s\ndata %s\nread by the compiled program alone %v\nby topdown alone %v",
				p.query(query), input, p.data, x, y)
		}
	}
	return compared, more, ""
}

// pathsOf are the paths of reads, each once, but for those within packages: both look for
// documents there that would have to be merged with rules, and there are none.
func pathsOf(c *ast.Compiler, reads [][]string) []string {
	var paths []string
	for _, path := range reads {
		if len(path) > 0 && c.RuleTree.Find(ast.Ref{ast.DefaultRootDocument, ast.StringTerm(path[0])}) != nil {
			continue
		}
		paths = append(paths, strings.Join(path, "/")+"/")
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// uncovered are those of paths that neither are in others nor below one of them.
func uncovered(paths, others []string) []string {
	var list []string
	for _, path := range paths {
		if !slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(path, other) }) {
			list = append(list, path)
		}
	}
	return list
}

func (p *program) shrinkReads(query int) string {
	_, how := "", ""
	for again := true; again; {
		again = false
		for s := range p.smaller {
			c, whole, err := s.compile()
			if err != nil || !whole {
				continue
			}
			if _, _, diff := s.readsDiffer(c, query); diff != "" {
				p, how, again = s, diff, true
				break
			}
		}
	}
	return p.modules()["lib.rego"] + p.modules()["p.rego"] + how
}
