package module

import (
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"

	"federator.dev/federator/pkg/policy/internal/compiled"
)

// Answer is the variable of a query for one document.
const Answer = ast.Var("answer")

// Query returns the query for a document below data.
func Query(c *ast.Compiler, path string) (ast.Body, error) {
	body, err := ast.ParseBody(string(Answer) + " = data." + path)
	if err != nil {
		return nil, err
	}
	return c.QueryCompiler().Compile(body)
}

// Program compiles the query for a rule of the package, "violation" or a view. The error is
// a *compiled.Unsupported if OPA has to interpret it.
func (p *Package) Program(c *ast.Compiler, rule string) (*compiled.Program, error) {
	body, err := Query(c, p.Path()+"."+rule)
	if err != nil {
		return nil, err
	}
	return compiled.Compile(c, body, []ast.Var{Answer}, CompileOptions(p.IsTemplate()))
}

// CompileOptions are those of all programs of policies, or of templates.
func CompileOptions(template bool) compiled.Options {
	if !template {
		return compiled.Options{}
	}
	return compiled.Options{Lenient: true, Builtins: TemplateBuiltins}
}

// Steps of an encoded lookup that are not known, and that no path has.
const (
	UnknownStep = "\x01"
	NoStep      = "\x02"
)

// TemplateBuiltins has what rewritten references call: it encodes a lookup as one step of
// a path.
var TemplateBuiltins = map[string]*topdown.Builtin{LookupBuiltin: {
	Decl: &ast.Builtin{Name: LookupBuiltin, Decl: types.NewFunction(types.Args(types.A), types.S)},
	Func: func(_ topdown.BuiltinContext, args []*ast.Term, iter func(*ast.Term) error) error {
		return iter(ast.StringTerm(encodeLookup(args[0].Value.(*ast.Array)))) // as the indexer writes it
	},
}}

func encodeLookup(a *ast.Array) string {
	var b strings.Builder
	for i := range a.Len() - 1 {
		switch v := a.Elem(i).Value.(type) {
		case ast.String:
			b.WriteString(string(v))
		case ast.Number:
			b.WriteString(v.String()) // OPA's stores have no other keys than strings
		case ast.Null:
			b.WriteString(UnknownStep)
		default:
			b.WriteString(NoStep)
		}
		b.WriteByte(0)
	}
	b.WriteString(IndexKey(a.Elem(a.Len() - 1).Value))
	return b.String()
}

// IndexKey is the key of a value in an index. Equal values have the same; others rarely.
func IndexKey(v ast.Value) string {
	if s, ok := v.(ast.String); ok && len(s) <= 64 {
		return "=" + string(s)
	}
	return strconv.Itoa(v.Hash())
}
