package admissioncel

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// references are the inputs that expressions read.
type references struct {
	namespace, resource bool
	request             []string // fields, each once
}

// answerable are the fields of a request that follow from an object.
var answerable = []string{
	"kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "name", "namespace", "operation",
}

// add adds what an expression reads, and returns the names of what cannot be answered.
func (r *references) add(e ast.Expr) []string {
	w := &walk{references: r}
	w.expr(e, nil)
	return w.refused
}

type walk struct {
	references *references
	refused    []string
}

func (w *walk) refuse(name string) {
	if !slices.Contains(w.refused, name) {
		w.refused = append(w.refused, name)
	}
}

// expr walks an expression; bound are the variables of comprehensions around it, which
// may have the name of an input.
func (w *walk) expr(e ast.Expr, bound []string) {
	switch e.Kind() {
	case ast.IdentKind:
		w.ident(e.AsIdent(), bound)
	case ast.SelectKind:
		s := e.AsSelect()
		if isFree(s.Operand(), "request", bound) {
			w.field(s.FieldName())
			return
		}
		w.expr(s.Operand(), bound)
	case ast.CallKind:
		w.call(e.AsCall(), bound)
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			w.expr(element, bound)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			w.expr(entry.AsMapEntry().Key(), bound)
			w.expr(entry.AsMapEntry().Value(), bound)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			w.expr(field.AsStructField().Value(), bound)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		w.expr(c.IterRange(), bound)
		w.expr(c.AccuInit(), bound)
		inner := append(slices.Clip(bound), c.IterVar(), c.IterVar2(), c.AccuVar())
		w.expr(c.LoopCondition(), inner)
		w.expr(c.LoopStep(), inner)
		w.expr(c.Result(), append(slices.Clip(bound), c.AccuVar()))
	case ast.LiteralKind, ast.UnspecifiedExprKind:
	}
}

func (w *walk) call(c ast.CallExpr, bound []string) {
	args := c.Args()
	if c.FunctionName() == operators.OptSelect && len(args) == 2 && isFree(args[0], "request", bound) && args[1].Kind() == ast.LiteralKind {
		if name, ok := args[1].AsLiteral().(types.String); ok {
			w.field(string(name))
			return
		}
	}
	if c.IsMemberFunction() {
		w.expr(c.Target(), bound)
	}
	for _, arg := range args {
		w.expr(arg, bound)
	}
}

func (w *walk) ident(name string, bound []string) {
	name, free := input(name, bound)
	if !free {
		return
	}
	switch name {
	case "oldObject", "authorizer":
		w.refuse(name)
	case "request":
		w.refuse("request as a whole")
	case "namespaceObject":
		w.references.namespace = true
	}
}

func (w *walk) field(name string) {
	if !slices.Contains(answerable, name) {
		w.refuse("request." + name)
	}
	if !slices.Contains(w.references.request, name) {
		w.references.request = append(w.references.request, name)
	}
	if name == "resource" || name == "requestResource" {
		w.references.resource = true
	}
}

func isFree(e ast.Expr, name string, bound []string) bool {
	if e.Kind() != ast.IdentKind {
		return false
	}
	of, free := input(e.AsIdent(), bound)
	return free && of == name
}

// input returns the input that an identifier means, ok false where it is a variable of a
// comprehension: one that begins with a dot never is.
func input(name string, bound []string) (of string, ok bool) {
	if of, rooted := strings.CutPrefix(name, "."); rooted {
		return of, true
	}
	return name, !slices.Contains(bound, name)
}
