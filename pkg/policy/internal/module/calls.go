package module

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// typeTests read no more of an argument than its type; a scalar is whole anyway.
var typeTests = map[string]bool{
	"is_array": true, "is_boolean": true, "is_null": true, "is_number": true,
	"is_object": true, "is_set": true, "is_string": true, "type_name": true,
}

// call evaluates a call: its operator, its arguments and, last, perhaps what its result
// is unified with. It returns the sources of the result.
func (s ruleScope) call(terms []*ast.Term, loc *ast.Location) sources {
	if loc == nil || loc.File == "" {
		loc = s.location
	}
	operator, ok := terms[0].Value.(ast.Ref)
	if !ok {
		for _, t := range terms[1:] {
			s.markAllWhole(s.term(t))
		}
		return sources{}
	}
	args := terms[1:]
	var arity int
	name := operator.String()
	var result sources
	if b := ast.BuiltinMap[name]; b != nil {
		arity = b.Decl.Arity()
		result = s.builtin(name, args[:min(arity, len(args))], loc)
	} else {
		arity, result = s.function(operator, args, loc)
	}
	if arity >= 0 && len(args) > arity {
		s.assign(args[arity], result)
	}
	return result
}

// builtin evaluates a call of a builtin with its arguments alone.
func (s ruleScope) builtin(name string, args []*ast.Term, loc *ast.Location) sources {
	from := make([]sources, len(args))
	for i, t := range args {
		from[i] = s.term(t)
	}
	switch {
	case typeTests[name]:
		return sources{}
	case name == ast.Count.Name || name == ast.ObjectKeys.Name:
		for n := range from[0] {
			if n.made {
				continue // how many it has, its own making reads
			}
			s.readKeys(sources{n: true}, loc)
		}
		return sources{}
	case name == ast.ArrayConcat.Name || name == ast.ArraySlice.Name || name == ast.ArrayReverse.Name:
		out := sources{}
		for i, f := range from {
			if name == ast.ArraySlice.Name && i > 0 {
				s.markAllWhole(f)
				continue
			}
			s.readKeys(f, loc)
			for n := range f {
				out[n] = true
			}
		}
		return out
	case name == ast.ObjectGet.Name && len(args) == 3:
		if path, ok := constantPath(args[1]); ok {
			out := s.steps(from[0], path, loc)
			for n := range from[2] {
				out[n] = true
			}
			return out
		}
	case (name == ast.Equal.Name || name == ast.NotEqual.Name) && len(args) == 2:
		s.guard(args[0], args[1], name == ast.Equal.Name)
	case name == ast.Member.Name && len(args) == 2:
		s.guardSet(args[0], args[1])
	}
	for _, f := range from {
		s.markAllWhole(f)
	}
	return sources{}
}

// constantPath returns the steps that object.get takes for a constant key or path. A
// number is any member: the mask does not distinguish elements of an array.
func constantPath(t *ast.Term) ([]*ast.Term, bool) {
	switch v := t.Value.(type) {
	case ast.String:
		return []*ast.Term{t}, true
	case *ast.Array:
		path := make([]*ast.Term, 0, v.Len())
		for i := range v.Len() {
			switch v.Elem(i).Value.(type) {
			case ast.String, ast.Number:
				path = append(path, v.Elem(i))
			default:
				return nil, false
			}
		}
		return path, true
	}
	return nil, false
}

// function evaluates a call of a function of a package. It returns the number of
// the function's parameters, -1 when there is no such function.
func (s ruleScope) function(operator ast.Ref, args []*ast.Term, loc *ast.Location) (int, sources) {
	result, arity := sources{}, -1
	p, rest := s.owner(operator, loc)
	if p != nil {
		for _, r := range p.byName[name(rest[0])] {
			if len(r.Head.Args) == 0 || !sameRef(r.Head.Ref(), rest) {
				continue
			}
			s.reach(r)
			arity = len(r.Head.Args)
			for b := r; b != nil; b = b.Else {
				callee := ruleScope{s.analysis, r}
				for i, param := range b.Head.Args {
					if i < len(args) {
						callee.assign(param, s.term(args[i]))
					}
				}
			}
			for n := range s.results[r] {
				result[n] = true
			}
		}
	}
	if arity < 0 {
		for _, t := range args {
			s.markAllWhole(s.term(t))
		}
	}
	return arity, result
}

// sameRef reports whether a rule's reference is the rest of a reference to it.
func sameRef(rule, rest ast.Ref) bool {
	if len(rule) != len(rest) {
		return false
	}
	for i, t := range rule {
		if name(t) == "" || name(t) != name(rest[i]) {
			return false
		}
	}
	return true
}

// name returns the constant name that a step of a reference is, or "".
func name(t *ast.Term) string {
	switch v := t.Value.(type) {
	case ast.String:
		return string(v)
	case ast.Var:
		return string(v)
	}
	return ""
}

// owner returns the package that a reference to data reaches, and the reference within
// it; nil after reporting one that is not allowed.
func (s ruleScope) owner(r ast.Ref, loc *ast.Location) (*Package, ast.Ref) {
	var found *Package
	at := 0
	var path strings.Builder
	for i, t := range r[1:] {
		step, ok := t.Value.(ast.String)
		if !ok {
			break
		}
		if i > 0 {
			path.WriteByte('.')
		}
		path.WriteString(string(step))
		if p := s.l.packages[path.String()]; p != nil {
			found, at = p, i+2
		}
	}
	own := s.ownPackages()
	switch {
	case s.p.Template != nil && (found == nil || at >= len(r) || !own(found)):
		s.report.errorAt("data", loc, "%s: a template may read data.inventory and data.lib", clip(r.String()))
		return nil, nil
	case found == nil || at >= len(r):
		s.report.errorAt("data", loc, "%s: a policy may read data.fleet, and rules of its own package and of federator.lib.* of its source", clip(r.String()))
		return nil, nil
	case !own(found):
		s.report.errorAt("data", loc, "%s: package %s is another policy; share through federator.lib.* or a view", clip(r.String()), found.Name)
		return nil, nil
	}
	return found, r[at:]
}

// ownPackages returns which packages may be referenced.
func (s ruleScope) ownPackages() func(*Package) bool {
	return func(p *Package) bool {
		return p == s.p || p.libraryOf == s.p || isLibrary(p.Name) && p.Source == s.p.Source
	}
}
