package compiled_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/test/seed"
)

// programsByDefault is how many evaluations of generated programs are compared.
const programsByDefault = 6_000

// TestGenerated_AgreesWithTopdown compares evaluations of random programs with topdown's.
// ORACLE_PROGRAMS sets how many.
func TestGenerated_AgreesWithTopdown(t *testing.T) {
	want := programsByDefault
	if text := os.Getenv("ORACLE_PROGRAMS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("ORACLE_PROGRAMS: %v", err)
		}
		want = n
	}
	if testing.Short() {
		want /= 10
	}
	base := seed.Of(t)
	var s statistics
	for i := uint64(0); s.evaluations < want; i++ {
		if !s.compare(t, fmt.Sprintf("%d+%d", base, i), generate(rand.NewPCG(base, i))) {
			break
		}
	}
	t.Log(s.String())
	if 2*s.kept < s.programs {
		t.Errorf("OPA refuses %d of %d programs, more than half", s.programs-s.kept, s.programs)
	}
}

// statistics say what generated programs were.
type statistics struct {
	programs, kept, whole                          int // generated, those that OPA takes, and as they are
	queries, compiled                              int
	evaluations, nonEmpty, failed, reordered, fell int
	indexed                                        int // comprehensions
	fallbacks, unsupported                         frequency
	order                                          string // an example of solutions in another order
}

func (s *statistics) String() string {
	share := func(n, of int) string { return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(max(1, of))) }
	return fmt.Sprintf("%d programs, OPA takes %s, %s as they are; %d indexed comprehensions; %d queries, %s compiled; %d evaluations, "+
		"%s with solutions, %s with errors of topdown, %s of topdown's order only, %s left to topdown without an error\n"+
		"not compiled:\n%v\nleft to topdown:\n%v",
		s.programs, share(s.kept, s.programs), share(s.whole, s.programs), s.indexed, s.queries, share(s.compiled, s.queries),
		s.evaluations, share(s.nonEmpty, s.evaluations), share(s.failed, s.evaluations), share(s.reordered, s.evaluations),
		share(s.fell, s.evaluations), s.unsupported, s.fallbacks)
}

// compare evaluates all queries of a program with all inputs, and reports whether topdown agrees.
func (s *statistics) compare(t *testing.T, name string, p *program) bool {
	t.Helper()
	s.programs++
	compiler, whole, err := p.compile()
	if err != nil {
		return true
	}
	s.kept++
	if whole {
		s.whole++
	}
	s.indexed += indexedComprehensions(compiler)
	var m compiled.Machine
	for i := range p.queries {
		e, err := p.evaluation(compiler, i, s.evaluations)
		if err != nil {
			continue
		}
		s.queries++
		program, err := e.compile()
		if err != nil {
			s.unsupported.add(reason(err))
			continue
		}
		s.compiled++
		for j := range p.inputs {
			if e.input, err = ast.ParseTerm(p.inputs[j]); err != nil {
				t.Fatal(err)
			}
			before := s.order
			if s.one(e, &m, program) {
				if s.order != before {
					t.Logf("program %s differs in the order of its solutions: %s\n%v\nquery: %s\ninput: %s\ndata: %s",
						name, s.order, p.modules(), p.query(i), p.inputs[j], p.data)
				}
				continue
			}
			small := shrink(p, i, j, s.evaluations)
			t.Errorf("program %s differs:\n%s", name, small)
			return false
		}
	}
	return true
}

// one makes one evaluation, and reports whether topdown agrees.
func (s *statistics) one(e *evaluation, m *compiled.Machine, program *compiled.Program) bool {
	got, want := e.ofProgram(m, program), e.ofTopdown()
	s.evaluations++
	switch {
	case want.err != nil:
		s.failed++
	case len(want.solutions) > 0:
		s.nonEmpty++
	}
	switch {
	case got.err != nil && want.err == nil:
		s.fell++
		s.fallbacks.add(got.err.Error())
		return true
	case got.err != nil, errors.Is(want.err, limits.ErrLimit):
		return true
	case sameOutcome(got, want):
		return true
	case sameButForOrder(got, want):
		s.reordered++
		if s.order == "" {
			s.order = fmt.Sprintf("compiled %v\ntopdown %v", got, want)
		}
		return true
	}
	return false
}

// evaluation compiles a query. nth decides how it is evaluated.
func (p *program) evaluation(compiler *ast.Compiler, query, nth int) (*evaluation, error) {
	body, err := ast.ParseBody(p.query(query))
	if err != nil {
		return nil, err
	}
	c := compiler.QueryCompiler()
	compiledBody, err := c.Compile(body)
	if err != nil {
		return nil, err
	}
	data, err := ast.ParseTerm(p.data)
	if err != nil {
		return nil, err
	}
	return &evaluation{
		compiler: compiler, query: compiledBody, outs: variables(compiledBody), data: data.Value,
		strict: nth%2 == 0, indexing: nth%3 > 0,
	}, nil
}

// indexedComprehensions counts the comprehensions that OPA has an index for.
func indexedComprehensions(c *ast.Compiler) int {
	n := 0
	for _, m := range c.Modules {
		ast.WalkTerms(m, func(t *ast.Term) bool {
			if c.ComprehensionIndex(t) != nil {
				n++
			}
			return false
		})
	}
	return n
}

// differs evaluates one query with one input, and says how topdown differs, "" if it agrees.
func (p *program) differs(query, input, nth int) string {
	compiler, err := ast.CompileModules(p.modules())
	if err != nil {
		return ""
	}
	e, err := p.evaluation(compiler, query, nth)
	if err != nil {
		return ""
	}
	program, err := e.compile()
	if err != nil {
		return ""
	}
	if e.input, err = ast.ParseTerm(p.inputs[input]); err != nil {
		return ""
	}
	var s statistics
	var m compiled.Machine
	if s.one(e, &m, program) {
		return ""
	}
	got, want := e.ofProgram(&m, program), e.ofTopdown()
	return fmt.Sprintf("strict %v, indexing %v\ncompiled %v\ntopdown %v", e.strict, e.indexing, got, want)
}

// shrink leaves out what it can of a program that differs, and describes the rest.
func shrink(p *program, query, input, nth int) string {
	how := ""
	for strict := range 6 { // as it was evaluated, or in another way
		if how = p.differs(query, input, nth+strict); how != "" {
			nth += strict
			break
		}
	}
	for again := true; again; {
		again = false
		for c := range p.smaller {
			if h := c.differs(query, input, nth); h != "" {
				p, how, again = c, h, true
				break
			}
		}
	}
	var b strings.Builder
	for _, text := range p.modules() {
		b.WriteString(text + "\n")
	}
	fmt.Fprintf(&b, "query: %s\ninput: %s\ndata: %s\n%s", p.query(query), p.inputs[input], p.data, how)
	return b.String()
}
