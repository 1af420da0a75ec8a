package module

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Bounds on the schema of parameters, and on parameters.
const (
	maxSchemaDepth = 32
	maxSchemaNodes = 5000
)

// Schema is the JSON schema (draft 7, without $ref) of a package's parameters,
// which are always an object. Unknown parameters are rejected unless
// additionalProperties is set.
type Schema struct {
	Raw map[string]any // as METADATA has it; not to be changed

	strict ast.Value // what parameters are validated against
}

// newSchema validates a schema.
func newSchema(raw any) (*Schema, error) {
	top, ok := raw.(map[string]any)
	if !ok {
		return nil, errors.New("the schema is not an object")
	}
	if t, ok := top["type"]; ok && t != "object" {
		return nil, fmt.Errorf("type is %s; parameters are an object", quote(t))
	}
	nodes := 0
	if err := checkSelfContained(top, 0, &nodes); err != nil {
		return nil, err
	}
	strict, err := ast.InterfaceToValue(disallowAdditional(top, true))
	if err != nil {
		return nil, err
	}
	s := &Schema{Raw: top, strict: strict}
	if err := verifySchema(strict); err != nil {
		return nil, err
	}
	return s, checkDefaults(top, "")
}

// checkSelfContained checks that a schema has no references and is within limits.
func checkSelfContained(x any, depth int, nodes *int) error {
	if *nodes++; depth > maxSchemaDepth || *nodes > maxSchemaNodes {
		return errors.New("the schema is too large")
	}
	switch x := x.(type) {
	case map[string]any:
		for key, v := range x {
			if key == "$ref" || key == "$schema" || key == "$id" || key == "id" && depth == 0 {
				return fmt.Errorf("%s is not allowed: the schema must be self-contained", key)
			}
			if err := checkSelfContained(v, depth+1, nodes); err != nil {
				return err
			}
		}
	case []any:
		for _, v := range x {
			if err := checkSelfContained(v, depth+1, nodes); err != nil {
				return err
			}
		}
	}
	return nil
}

// disallowAdditional returns a copy in which objects with properties allow no others. A schema
// that combines others stays as it is: each of them would have to name all properties.
func disallowAdditional(s map[string]any, top bool) map[string]any {
	out := maps.Clone(s)
	if top {
		out["type"] = "object"
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependencies"} {
		if _, ok := s[key]; ok {
			return out
		}
	}
	properties, ok := s["properties"].(map[string]any)
	if ok || top {
		if _, says := s["additionalProperties"]; !says {
			out["additionalProperties"] = false
		}
	}
	if ok {
		strict := make(map[string]any, len(properties))
		for name, p := range properties {
			strict[name] = disallowAdditionalAny(p)
		}
		out["properties"] = strict
	}
	if items, ok := s["items"]; ok {
		out["items"] = disallowAdditionalAny(items)
	}
	return out
}

func disallowAdditionalAny(x any) any {
	if s, ok := x.(map[string]any); ok {
		return disallowAdditional(s, false)
	}
	return x
}

// checkDefaults checks that every default matches its own schema.
func checkDefaults(s map[string]any, at string) error {
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p, ok := properties[name].(map[string]any)
		if !ok {
			continue
		}
		if d, ok := p["default"]; ok {
			one, err := ast.InterfaceToValue(map[string]any{"properties": map[string]any{name: disallowAdditional(p, false)}})
			if err != nil {
				return err
			}
			if problems, err := validate(map[string]any{name: d}, one); err != nil || len(problems) > 0 {
				return fmt.Errorf("the default of %s%s does not match its schema: %s", at, name, joinProblems(problems, err))
			}
		}
		if err := checkDefaults(p, at+name+"."); err != nil {
			return err
		}
	}
	return nil
}

// alwaysSet reports whether resolved parameters always have it.
func (s *Schema) alwaysSet(name string) bool {
	if s == nil {
		return false
	}
	if required, ok := s.Raw["required"].([]any); ok && slices.Contains(required, any(name)) {
		return true
	}
	properties, _ := s.Raw["properties"].(map[string]any)
	property, _ := properties[name].(map[string]any)
	_, ok := property["default"]
	return ok
}

func joinProblems(problems []string, err error) string {
	if err != nil {
		return err.Error()
	}
	return strings.Join(problems, "; ")
}

// Resolve returns parameters with the defaults of missing ones, or the problems with
// them. The result shares no memory with its inputs. A nil Schema allows no parameters.
func (s *Schema) Resolve(parameters map[string]any) (map[string]any, []string) {
	if s == nil {
		if len(parameters) > 0 {
			return nil, []string{"the package takes no parameters"}
		}
		return map[string]any{}, nil
	}
	nodes := 0
	if !withinLimits(parameters, 0, &nodes) {
		return nil, []string{"the parameters are too large"}
	}
	out, _ := withDefaults(parameters, s.Raw).(map[string]any)
	problems, err := validate(out, s.strict)
	if err != nil {
		return nil, []string{err.Error()}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return out, nil
}

func withinLimits(x any, depth int, nodes *int) bool {
	if *nodes++; depth > maxSchemaDepth || *nodes > maxSchemaNodes {
		return false
	}
	switch x := x.(type) {
	case map[string]any:
		for _, v := range x {
			if !withinLimits(v, depth+1, nodes) {
				return false
			}
		}
	case []any:
		for _, v := range x {
			if !withinLimits(v, depth+1, nodes) {
				return false
			}
		}
	}
	return true
}

// withDefaults copies a value and adds the defaults of its schema.
func withDefaults(x any, s map[string]any) any {
	switch x := x.(type) {
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		out := make(map[string]any, len(x))
		for name, v := range x {
			p, _ := properties[name].(map[string]any)
			out[name] = withDefaults(v, p)
		}
		for name, p := range properties {
			p, _ := p.(map[string]any)
			if d, ok := p["default"]; ok {
				if _, given := x[name]; !given {
					out[name] = withDefaults(d, p)
				}
			}
		}
		return out
	case []any:
		items, _ := s["items"].(map[string]any)
		out := make([]any, 0, len(x))
		for _, v := range x {
			out = append(out, withDefaults(v, items))
		}
		return out
	}
	return x
}

// DocumentSchema is the JSON schema (draft 7, without $ref) of a document that is no object of the fleet. Unlike that of parameters
// it means what it says: properties that it does not name are allowed.
type DocumentSchema struct{ schema ast.Value }

// NewDocumentSchema validates a schema.
func NewDocumentSchema(raw any) (*DocumentSchema, error) {
	if _, ok := raw.(map[string]any); !ok {
		return nil, errors.New("the schema is not an object")
	}
	nodes := 0
	if err := checkSelfContained(raw, 0, &nodes); err != nil {
		return nil, err
	}
	v, err := ast.InterfaceToValue(raw)
	if err != nil {
		return nil, err
	}
	return &DocumentSchema{v}, verifySchema(v)
}

// Problems returns what does not match of a document as encoding/json decodes it, sorted: each begins with the field.
func (s *DocumentSchema) Problems(document any) ([]string, error) {
	return validate(document, s.schema)
}

// verifySchema checks that a value is a schema.
func verifySchema(schema ast.Value) error {
	answer, err := call(ast.JSONSchemaVerify.Name, ast.NewTerm(schema))
	if err != nil {
		return err
	}
	if answer.Elem(0).Equal(ast.InternedBooleanTrue) {
		return nil
	}
	s, _ := answer.Elem(1).Value.(ast.String)
	return errors.New(strings.TrimPrefix(string(s), "jsonschema: "))
}

// validate returns the problems with a document, sorted.
func validate(document any, schema ast.Value) ([]string, error) {
	v, err := ast.InterfaceToValue(document)
	if err != nil {
		return nil, err
	}
	answer, err := call(ast.JSONMatchSchema.Name, ast.NewTerm(v), ast.NewTerm(schema))
	if err != nil {
		return nil, err
	}
	list, err := ast.JSON(answer.Elem(1).Value)
	if err != nil {
		return nil, err
	}
	var problems []string
	items, _ := list.([]any)
	for _, x := range items {
		fields, _ := x.(map[string]any)
		problems = append(problems, strings.TrimPrefix(fmt.Sprint(fields["error"]), "(Root): "))
	}
	slices.Sort(problems)
	return problems, nil
}

// call calls one of OPA's builtins for JSON schemas, which return a pair.
func call(builtin string, args ...*ast.Term) (answer *ast.Array, err error) {
	f := topdown.GetBuiltin(builtin)
	if f == nil {
		panic("module: no builtin " + builtin)
	}
	// Nothing is fetched: the schema has no references, and no host is allowed.
	bctx := topdown.BuiltinContext{Capabilities: &ast.Capabilities{AllowNet: []string{}}}
	defer func() {
		if p := recover(); p != nil { // of values that the library does not expect
			err = fmt.Errorf("%s panicked: %v", builtin, p)
		}
	}()
	err = f(bctx, args, func(t *ast.Term) error {
		answer, _ = t.Value.(*ast.Array)
		return nil
	})
	if err == nil && (answer == nil || answer.Len() != 2) {
		err = fmt.Errorf("%s returned no result", builtin)
	}
	return answer, err
}
