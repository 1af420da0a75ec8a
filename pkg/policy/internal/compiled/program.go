package compiled

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/value"
)

// Options are those of a compilation.
type Options struct {
	Lenient  bool                        // an error of a builtin is undefined
	Builtins map[string]*topdown.Builtin // beside OPA's own
}

// Program is a query that is compiled. Any number of Machines may run it at a time.
type Program struct {
	run                         code
	frame, memos, keyed, caches int
	paths                       int // below the input
	misindexed                  bool
}

// Misindexed reports whether OPA's rule index (of v1.22) may leave out rules that have results:
// it looks for a value among the constants of a collection in which variables are, too
// (x in {"a", x}). Topdown is right without it.
func (p *Program) Misindexed() bool { return p.misindexed }

// Unsupported is the error of a construct that is not compiled.
type Unsupported struct {
	Location *ast.Location // may be nil
	Rule     string        // "": the query
	What     string
}

func (u *Unsupported) Error() string {
	at := ""
	if u.Location != nil && u.Location.File != "" {
		at = u.Location.String() + ": "
	}
	if u.Rule != "" {
		return fmt.Sprintf("%s%s: %s", at, u.Rule, u.What)
	}
	return at + u.What
}

// Compile compiles a query, which c's QueryCompiler has compiled, and the rules that it
// needs. Its solutions are the values of variables outs. The error is an *Unsupported.
func Compile(c *ast.Compiler, query ast.Body, outs []ast.Var, o Options) (p *Program, err error) {
	p = &Program{}
	k := &compiler{ast: c, options: o, program: p, definitions: map[*ast.TreeNode]*definition{}, paths: map[string]int{}}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Unsupported:
			p, err = nil, r
		default:
			p, err = nil, &Unsupported{What: fmt.Sprintf("compiler panicked: %v", r)}
		}
	}()
	f := &function{}
	s := &scope{compiler: k, function: f, vars: map[ast.Var]int{}}
	l := s.body(query)
	slots := make([]int, len(outs))
	for i, v := range outs {
		slot, ok := s.vars[v]
		if !ok {
			s.unsupported(nil, "a variable that the query does not bind")
		}
		slots[i] = slot
	}
	p.run = l(func(m *Machine, fr frame) signal {
		m.outs = m.outs[:0]
		for _, slot := range slots {
			m.outs = append(m.outs, fr[slot])
		}
		if err := m.yield(m.outs); err != nil {
			return m.fail(err)
		}
		return more
	})
	p.frame = f.slots
	return p, nil
}

// compiler compiles one query.
type compiler struct {
	ast         *ast.Compiler
	options     Options
	program     *Program
	definitions map[*ast.TreeNode]*definition
	paths       map[string]int // below the input, by their names
}

// function is a frame that is laid out: of the query, of a rule, of an indexed comprehension.
type function struct{ slots int }

func (f *function) slot() int {
	f.slots++
	return f.slots - 1
}

// scope is where an expression is compiled: which variables are bound before it.
type scope struct {
	*compiler
	function *function
	rule     *ast.Rule // nil: the query
	location *ast.Location
	vars     map[ast.Var]int // the slots of those that are bound
	plugged  bool            // topdown replaces the variables of a term before it uses it
}

// plugging is the scope for terms whose variables topdown replaces by values first: sets and
// objects of them are in order then.
func (s *scope) plugging() *scope {
	p := *s
	p.plugged = true
	return &p
}

// nested is a scope whose bindings end with it.
func (s *scope) nested() *scope {
	n := *s
	n.plugged = false
	n.vars = make(map[ast.Var]int, len(s.vars)+4)
	for v, slot := range s.vars {
		n.vars[v] = slot
	}
	return &n
}

// bind gives a variable a slot.
func (s *scope) bind(v ast.Var) int {
	slot := s.function.slot()
	s.vars[v] = slot
	return slot
}

// unsupported ends the compilation.
func (s *scope) unsupported(at *ast.Location, format string, args ...any) {
	u := &Unsupported{Location: at, What: fmt.Sprintf(format, args...)}
	if u.Location == nil {
		u.Location = s.location
	}
	if s.rule != nil {
		u.Rule = s.rule.Ref().GroundPrefix().String()
	}
	panic(u)
}

// constant returns the value of a ground term that has no references, undefined for others.
func constant(t *ast.Term) value.Value {
	if !t.IsGround() {
		return value.Value{}
	}
	return value.Of(nil, t.Value)
}
