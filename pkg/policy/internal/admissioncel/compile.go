package admissioncel

import (
	"fmt"
	"slices"

	celgo "github.com/google/cel-go/cel"
	plugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// expression is a plugin.NamedExpressionAccessor.
type expression struct {
	name, text string
	returns    []*celgo.Type
}

func (e *expression) GetName() string { return e.name }

func (e *expression) GetExpression() string { return e.text }

func (e *expression) ReturnTypes() []*celgo.Type { return e.returns }

var (
	boolean  = []*celgo.Type{celgo.BoolType}
	text     = []*celgo.Type{celgo.StringType}
	anything = []*celgo.Type{celgo.AnyType, celgo.DynType}
)

// Program is a compiled Policy.
type Program struct {
	policy      Policy
	compiler    *plugin.CompositedCompiler
	conditions  []plugin.CompilationResult
	validations []plugin.CompilationResult
	messages    []plugin.CompilationResult // zero where a validation has none
	reads       references
}

// ReadsNamespace reports whether an expression reads namespaceObject.
func (p *Program) ReadsNamespace() bool { return p.reads.namespace }

// RequestFields returns the fields of request that expressions read, sorted, without those
// that are the object's: its kind, name and namespace.
func (p *Program) RequestFields() []string {
	return slices.DeleteFunc(slices.Sorted(slices.Values(p.reads.request)), func(field string) bool {
		return field == "kind" || field == "name" || field == "namespace"
	})
}

// ReadsResource reports whether an expression reads request.resource, which only
// discovery knows.
func (p *Program) ReadsResource() bool { return p.reads.resource }

// HasParams reports whether expressions can see parameters.
func (p *Program) HasParams() bool { return p.policy.HasParams || p.policy.Dialect == Gatekeeper }

// Compile compiles a policy, or says what is wrong with it and what no object of a
// member can answer. With a Problem that is no warning the Program is nil.
func Compile(of Policy) (*Program, []Problem) {
	// The API server compiles what is stored in its storage likewise: with everything
	// that any version of it has known.
	compiler, err := plugin.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, []Problem{{Path: of.At, Message: fmt.Sprintf("no compiler of expressions: %v", err)}}
	}
	c := &compilation{program: &Program{policy: of, compiler: compiler}}
	// The authorizer is declared, so that it is refused as what it is.
	all := plugin.OptionalVariableDeclarations{HasParams: of.HasParams, HasAuthorizer: of.Dialect == Admission}
	ofMessages := plugin.OptionalVariableDeclarations{HasParams: of.HasParams}
	ofVariables := all
	if of.Dialect == Gatekeeper {
		ofVariables.HasParams = true
		for _, v := range injected {
			compiler.CompileAndStoreVariable(&expression{v.Name, v.Expression, anything}, ofVariables, environment.StoredExpressions)
		}
	}
	names := map[string]bool{}
	for i, v := range of.Variables {
		at := fmt.Sprintf("%s.variables[%d]", of.At, i)
		if names[v.Name] {
			c.report(at+".name", "another variable is named %q", v.Name)
		}
		names[v.Name] = true
		e := &expression{v.Name, v.Expression, anything}
		c.check(at+".expression", e, compiler.CompileAndStoreVariable(e, ofVariables, environment.StoredExpressions))
	}
	for i, m := range of.Conditions {
		at := fmt.Sprintf("%s.%s[%d].expression", of.At, of.conditionAt, i)
		c.program.conditions = append(c.program.conditions, c.compile(at, m.Expression, boolean, all))
	}
	for i, v := range of.Validations {
		at := fmt.Sprintf("%s.validations[%d]", of.At, i)
		c.program.validations = append(c.program.validations, c.compile(at+".expression", v.Expression, boolean, all))
		message := plugin.CompilationResult{}
		if v.MessageExpression != "" {
			c.tolerant = of.Dialect == Gatekeeper
			message = c.compile(at+".messageExpression", v.MessageExpression, text, ofMessages)
			c.tolerant = false
		}
		c.program.messages = append(c.program.messages, message)
	}
	if c.failed {
		return nil, c.problems
	}
	return c.program, c.problems
}

type compilation struct {
	program  *Program
	problems []Problem
	failed   bool
	tolerant bool // what does not compile is a warning
}

func (c *compilation) report(at, format string, args ...any) {
	c.failed = true
	c.problems = append(c.problems, Problem{Path: at, Message: fmt.Sprintf(format, args...)})
}

func (c *compilation) compile(at, source string, returns []*celgo.Type, options plugin.OptionalVariableDeclarations) plugin.CompilationResult {
	e := &expression{text: source, returns: returns}
	result := c.program.compiler.CompileCELExpression(e, options, environment.StoredExpressions)
	c.check(at, e, result)
	return result
}

// check reports why an expression does not compile, or what it asks that only a request has.
func (c *compilation) check(at string, e *expression, result plugin.CompilationResult) {
	if result.Error != nil && c.tolerant {
		c.problems = append(c.problems, Problem{Path: at, Message: result.Error.Detail + ": the message is used instead, as Gatekeeper does", Warning: true})
		return
	}
	if result.Error != nil {
		c.report(at, "%s", result.Error.Detail)
		return
	}
	env, err := c.program.compiler.Env(environment.StoredExpressions)
	if err != nil {
		c.report(at, "no environment of expressions: %v", err)
		return
	}
	parsed, issues := env.Parse(e.text)
	if issues.Err() != nil {
		c.report(at, "%v", issues.Err())
		return
	}
	for _, name := range c.program.reads.add(parsed.NativeRep().Expr()) {
		c.report(at, "reads %s, which only a request has: %s", name, whyRefused(name))
		c.problems[len(c.problems)-1].Request = true
	}
}

func whyRefused(name string) string {
	switch name {
	case "oldObject":
		return "an object of a member is judged as it is, not as a change of what it was"
	case "authorizer":
		return "nobody asks for the object, so nobody's permissions can be checked"
	case "request.userInfo":
		return "who once wrote the object is not known"
	default:
		return "an object of a member is judged without one"
	}
}
