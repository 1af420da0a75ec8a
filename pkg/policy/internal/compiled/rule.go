package compiled

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/value"
)

// The first variables of a rule's frame.
const (
	slotResult = iota // of a complete rule or function, undefined until there is one
	slotFound         // whether the rule that is evaluated has a result
	slotArgs          // the first argument or key
)

// definition is all rules of one name.
type definition struct {
	ast      *ast.IndexResult
	node     *ast.TreeNode
	function function // the frame that its rules share
	clauses  []clause
	fallback code // the default
	findOne  bool // the first result is that of all, as topdown has it
	memo     int
	args     int
	keep     int // of a function: its results for arguments, -1 for none
	variants map[uint64]*variant
	extent   expr // of a partial rule
}

// clause is a rule, and those that are evaluated instead if it has no result.
type clause struct {
	run       code
	otherwise []code
}

// definition returns what a node of the rule tree defines.
func (s *scope) definition(node *ast.TreeNode, ref ast.Ref) *definition {
	if d := s.definitions[node]; d != nil {
		return d
	}
	if node.Index == nil {
		s.unsupported(ref[0].Location, "%s has no rules", ref)
	}
	result, err := node.Index.AllRules(nil)
	if err != nil || result.Empty() {
		s.unsupported(ref[0].Location, "the rules of %s are not known", ref)
	}
	d := &definition{ast: result, node: node, memo: s.program.memos, findOne: result.EarlyExit && agree(result), keep: -1}
	d.variants = map[uint64]*variant{}
	s.program.memos++
	s.definitions[node] = d
	return d
}

// agree reports whether all rules have one constant value. What is known of all rules without
// looking at the input says so of some that do not.
func agree(r *ast.IndexResult) bool {
	var known ast.Value
	same := func(rules []*ast.Rule) bool {
		for _, rule := range rules {
			v := rule.Head.Value
			switch {
			case rule.Head.DocKind() != ast.CompleteDoc || v == nil || !v.IsGround():
				return false
			case known == nil:
				known = v.Value
			case known.Compare(v.Value) != 0:
				return false
			}
		}
		return true
	}
	if !same(r.Rules) {
		return false
	}
	for _, others := range r.Else {
		if !same(others) {
			return false
		}
	}
	return true
}

// first is a rule of the definition: all have the same number of arguments.
func (d *definition) first() *ast.Rule {
	if len(d.ast.Rules) > 0 {
		return d.ast.Rules[0]
	}
	return d.ast.Default
}

// virtual compiles a reference to the rules of a node, at the element pos.
func (s *scope) virtual(node *ast.TreeNode, ref ast.Ref, pos int) (start, bool) {
	d := s.definition(node, ref[:pos+1])
	if len(d.first().Head.Args) > 0 {
		return start{func(*Machine, frame) value.Value { return value.Value{} }, nil}, true
	}
	if d.ast.Kind == ast.SingleValue && d.ast.OnlyGroundRefs {
		s.complete(d)
		return start{func(m *Machine, _ frame) value.Value { return d.value(m) }, ref[pos+1:]}, true
	}
	s.refusePatterns(d, ref, pos)
	if len(ref) > pos+1 && s.stepIsBound(ref[pos+1]) {
		return start{s.keyed(d, ref, pos), ref[pos+1:]}, true
	}
	return start{s.extent(d, pos), ref[pos+1:]}, true
}

// refusePatterns ends the compilation for a reference to partial rules by a composite that
// has variables to bind: topdown binds the variables of a rule's head to that, and what their
// rule does with them then is not always what it does with values.
func (s *scope) refusePatterns(d *definition, ref ast.Ref, pos int) {
	end := pos + 2
	for _, r := range d.ast.Rules {
		end = max(end, len(r.Ref())+1)
	}
	for _, t := range ref[pos+1 : min(end, len(ref))] {
		if _, isVar := t.Value.(ast.Var); !isVar && !s.stepIsBound(t) {
			s.unsupported(t.Location, "a key of rules that is a pattern")
		}
	}
}

// inRule is the scope of a rule's body.
func (s *scope) inRule(r *ast.Rule, f *function) *scope {
	return &scope{compiler: s.compiler, function: f, rule: r, location: r.Location, vars: map[ast.Var]int{}}
}

// complete compiles the rules of a definition that has one value, or those of a function.
func (s *scope) complete(d *definition) {
	if d.clauses != nil || d.fallback != nil {
		return
	}
	d.args = len(d.first().Head.Args)
	reserve := slotArgs + d.args
	size := reserve
	one := func(r *ast.Rule) code {
		f := &function{slots: reserve}
		c := s.inRule(r, f).clause(d, r)
		size = max(size, f.slots)
		return c
	}
	d.clauses = []clause{}
	for _, r := range d.ast.Rules {
		c := clause{run: one(r)}
		for _, other := range d.ast.Else[r] {
			c.otherwise = append(c.otherwise, one(other))
		}
		d.clauses = append(d.clauses, c)
	}
	if d.ast.Default != nil {
		d.fallback = one(d.ast.Default)
	}
	d.function.slots = size
}

// clause compiles one rule of a definition that has one value.
func (s *scope) clause(d *definition, r *ast.Rule) code {
	var links []link
	for i, arg := range r.Head.Args {
		links = append(links, s.match(arg, slotArgs+i))
	}
	links = append(links, s.body(r.Body))
	head, ok := s.ground(r.Head.Value)
	if !ok {
		s.unsupported(r.Location, "a head that is not bound")
	}
	answer := more
	if d.findOne || constant(r.Head.Value).Defined() && s.cannotFail(r.Body) {
		answer = stop
	}
	return chain(links)(func(m *Machine, fr frame) signal {
		v := head(m, fr)
		if !v.Defined() {
			return m.none()
		}
		old := fr[slotResult]
		if old.Defined() && !value.Equal(old, v) {
			return m.fail(errConflict)
		}
		if !old.Defined() { // the first of equal values is kept: 1 and 1.0 are written differently
			fr[slotResult] = v
		}
		fr[slotFound] = value.True
		return answer
	})
}

// value is the value of a complete rule.
func (d *definition) value(m *Machine) value.Value {
	if memo := &m.memo[d.memo]; memo.known {
		return memo.value
	}
	fr := m.push(d.function.slots)
	fr[slotResult] = value.Value{}
	v := d.solve(m, fr)
	m.pop(d.function.slots)
	if m.err == nil {
		m.memo[d.memo] = memoized{true, v}
	}
	return v
}

// solve evaluates the rules in a frame whose arguments are set.
func (d *definition) solve(m *Machine, fr frame) value.Value {
	if m.tick() {
		return value.Value{}
	}
	for i := range d.clauses {
		c := &d.clauses[i]
		found, failed := attempt(m, fr, c.run)
		for j := 0; !found && !failed && j < len(c.otherwise); j++ {
			found, failed = attempt(m, fr, c.otherwise[j])
		}
		if failed {
			return value.Value{}
		}
		if found && d.findOne {
			return fr[slotResult]
		}
	}
	if d.fallback != nil && !fr[slotResult].Defined() {
		if _, failed := attempt(m, fr, d.fallback); failed {
			return value.Value{}
		}
	}
	return fr[slotResult]
}

// attempt evaluates one rule.
func attempt(m *Machine, fr frame, run code) (found, failed bool) {
	fr[slotFound] = value.False
	if run(m, fr) == halt {
		return false, true
	}
	return fr[slotFound].IsTrue(), false
}
