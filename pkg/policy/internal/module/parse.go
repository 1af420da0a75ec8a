package module

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Bounds on the shape of a file. OPA's compiler has none of its own: it walks
// terms recursively, and orders the expressions of a body in more than linear time.
const (
	maxDepth       = 200  // nested terms, bodies and else branches
	maxExpressions = 500  // of one body, those of nested bodies included
	maxRules       = 5000 // of one file
)

// parse parses a file; nil after it has added an error.
func parse(name string, data []byte, bad *findings) (m *ast.Module) {
	defer recoverPanic(name, bad, func() { m = nil })
	if bytes.IndexByte(data, 0) >= 0 {
		bad.fileError("parse", name, "the file has NUL bytes")
		return nil
	}
	if len(bytes.TrimSpace(data)) == 0 {
		bad.fileError("parse", name, "the file is empty")
		return nil
	}
	caps := capabilities()
	// ParseModuleWithOpts has no option for the depth, so that the file is parsed
	// once with a parser that has.
	_, _, errs := ast.NewParser().WithFilename(name).WithReader(bytes.NewReader(data)).WithCapabilities(caps).
		WithRegoVersion(ast.RegoV1).WithMaxRecursionDepth(8 * maxDepth).Parse()
	if len(errs) > 0 {
		bad.opaErrors("parse", name, errs)
		return nil
	}
	m, err := ast.ParseModuleWithOpts(name, string(data), ast.ParserOptions{
		Capabilities: caps, ProcessAnnotation: true, RegoVersion: ast.RegoV1,
	})
	if err == nil && m == nil {
		err = errors.New("the file is empty")
	}
	if err != nil {
		bad.opaErrors("parse", name, err)
		return nil
	}
	before := len(bad.list)
	// checkReservedNames refuses names that would hide OPA's own functions, to which
	// "in" and template strings are compiled.
	checkReservedNames(m, bad)
	if len(m.Rules) > maxRules {
		bad.fileError("too-many", name, "the file has %d rules; at most %d are allowed", len(m.Rules), maxRules)
	}
	for _, r := range m.Rules {
		if err := checkShape(r); err != nil {
			bad.errorAt("too-deep", r.Location, "%v", err)
		}
	}
	if len(bad.list) > before {
		return nil
	}
	return m
}

// checkReservedNames refuses what would hide OPA's own functions, which "in" and template
// strings are compiled to.
func checkReservedNames(m *ast.Module, bad *findings) {
	const message = "%s named internal hides what \"in\" is compiled to: rename it"
	for _, i := range m.Imports {
		if i.Name() == "internal" {
			bad.errorAt("reserved", i.Location, message, "an import")
		}
	}
	for _, r := range m.Rules {
		if name(r.Head.Ref()[0]) == "internal" {
			bad.errorAt("reserved", r.Location, message, "a rule")
		}
	}
}

// recoverPanic turns a panic of OPA into an error about the file: policies come from
// others' repositories, and none must end the process.
func recoverPanic(name string, bad *findings, then func()) {
	if p := recover(); p != nil {
		bad.fileError("internal", name, "OPA panicked: %v", p)
		then()
	}
}

// checkShape checks the bounds of a rule.
func checkShape(r *ast.Rule) error {
	s := &shapeChecker{}
	s.rule(r, 0)
	switch {
	case s.deep:
		return fmt.Errorf("the rule nests more than %d levels", maxDepth)
	case s.expressions > maxExpressions:
		return fmt.Errorf("the rule has more than %d expressions", maxExpressions)
	}
	return nil
}

// shapeChecker measures a rule. It stops at its bounds.
type shapeChecker struct {
	expressions int
	deep        bool
}

func (s *shapeChecker) rule(r *ast.Rule, depth int) {
	for ; r != nil && !s.stop(depth); r, depth = r.Else, depth+1 {
		s.terms(depth, r.Head.Args...)
		s.terms(depth, r.Head.Reference...)
		s.terms(depth, r.Head.Key, r.Head.Value)
		s.body(r.Body, depth)
	}
}

func (s *shapeChecker) stop(depth int) bool {
	s.deep = s.deep || depth > maxDepth
	return s.deep || s.expressions > maxExpressions
}

func (s *shapeChecker) body(b ast.Body, depth int) {
	for _, e := range b {
		s.expressions++
		if s.stop(depth) {
			return
		}
		switch t := e.Terms.(type) {
		case *ast.Term:
			s.terms(depth, t)
		case []*ast.Term:
			s.terms(depth, t...)
		case *ast.SomeDecl:
			s.terms(depth, t.Symbols...)
		case *ast.Every:
			s.terms(depth, t.Key, t.Value, t.Domain)
			s.body(t.Body, depth+1)
		}
		for _, w := range e.With {
			s.terms(depth, w.Target, w.Value)
		}
	}
}

func (s *shapeChecker) terms(depth int, list ...*ast.Term) {
	for _, t := range list {
		if t == nil {
			continue
		}
		if s.stop(depth) {
			return
		}
		s.value(t.Value, depth+1)
	}
}

func (s *shapeChecker) value(v ast.Value, depth int) {
	switch v := v.(type) {
	case ast.Ref:
		s.terms(depth, v...)
	case ast.Call:
		s.terms(depth, v...)
	case *ast.Array:
		for i := range v.Len() {
			s.terms(depth, v.Elem(i))
		}
	case ast.Set:
		s.terms(depth, v.Slice()...)
	case ast.Object:
		v.Foreach(func(key, value *ast.Term) { s.terms(depth, key, value) })
	case *ast.ArrayComprehension:
		s.terms(depth, v.Term)
		s.body(v.Body, depth)
	case *ast.SetComprehension:
		s.terms(depth, v.Term)
		s.body(v.Body, depth)
	case *ast.ObjectComprehension:
		s.terms(depth, v.Key, v.Value)
		s.body(v.Body, depth)
	case *ast.TemplateString:
		for _, part := range v.Parts {
			switch p := part.(type) {
			case *ast.Term:
				s.terms(depth, p)
			case *ast.Expr:
				s.body(ast.NewBody(p), depth)
			}
		}
	}
}
