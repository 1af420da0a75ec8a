package constraintschema

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	k8sjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Schema is that of the constraints of a template, as far as it is about parameters.
type Schema struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// where the schema of parameters is within that of constraints, in paths of errors.
const where = "properties[spec].properties[parameters]"

// New compiles the openAPIV3Schema of a template, which may be nil. A legacy one need not
// be structural: objects keep fields that it does not know.
func New(ctx context.Context, of map[string]any, legacy bool) (*Schema, []string) {
	spec := map[string]any{"type": "object"}
	if legacy || of != nil {
		parameters, err := copyOf(of)
		if err != nil {
			return nil, []string{err.Error()}
		}
		if problems := checkTypes(parameters, ""); len(problems) > 0 {
			return nil, problems
		}
		if legacy {
			preserve(parameters)
		}
		spec["properties"] = map[string]any{"parameters": parameters}
	}
	internal, err := convert(map[string]any{"type": "object", "properties": map[string]any{"spec": spec}})
	if err != nil {
		return nil, []string{err.Error()}
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		return nil, []string{err.Error()}
	}
	if errs := schema.ValidateStructural(nil, structural); len(errs) > 0 {
		return nil, problems(errs)
	}
	errs, err := defaulting.ValidateDefaults(ctx, nil, structural, true, true)
	switch {
	case err != nil:
		return nil, []string{err.Error()}
	case len(errs) > 0:
		return nil, problems(errs)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, []string{err.Error()}
	}
	return &Schema{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

func problems(errs field.ErrorList) []string {
	var out []string
	for _, e := range errs {
		out = append(out, strings.TrimPrefix(strings.TrimPrefix(e.Error(), where), "."))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func convert(of map[string]any) (*apiextensions.JSONSchemaProps, error) {
	raw, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(raw, &props); err != nil {
		return nil, err
	}
	var out apiextensions.JSONSchemaProps
	return &out, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, &out, nil)
}

// copyOf returns a copy with numbers as the API server has them; of nil, an empty map.
func copyOf(of map[string]any) (map[string]any, error) {
	out := map[string]any{}
	if of == nil {
		return out, nil
	}
	raw, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	return out, k8sjson.Unmarshal(raw, &out)
}

// children calls visit with the schemas directly below one.
func children(of map[string]any, visit func(path string, below map[string]any)) {
	properties, _ := of["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if below, ok := properties[name].(map[string]any); ok {
			visit(fmt.Sprintf("properties[%s]", name), below)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if below, ok := of[key].(map[string]any); ok {
			visit(key, below)
		}
	}
}

var types = []string{"array", "boolean", "integer", "number", "object", "string"}

// checkTypes returns where a schema has a type that there is not.
func checkTypes(of map[string]any, path string) []string {
	var out []string
	if t, ok := of["type"].(string); ok && t != "" && !slices.Contains(types, t) {
		out = append(out, fmt.Sprintf("%s: %q is not one of %s", strings.TrimPrefix(path+".type", "."), t, strings.Join(types, ", ")))
	}
	children(of, func(at string, below map[string]any) {
		out = append(out, checkTypes(below, strings.TrimPrefix(path+"."+at, "."))...)
	})
	return out
}

// preserve makes a legacy schema structural, as Gatekeeper does.
func preserve(of map[string]any) {
	switch of["type"] {
	case nil, "", "object":
		of["x-kubernetes-preserve-unknown-fields"] = true
	case "array":
		if of["items"] == nil {
			of["items"] = map[string]any{}
		}
	}
	children(of, func(_ string, below map[string]any) { preserve(below) })
}

// Result is what a Schema makes of parameters.
type Result struct {
	Parameters map[string]any // nil when there are none
	// Unknown are the paths of fields that are not in Parameters any more, such as
	// spec.parameters.x.
	Unknown  []string
	Problems []Problem
}

// Problem is why parameters are invalid.
type Problem struct{ Path, Message string }

// Apply returns what the API server makes of the parameters of a constraint, which it does
// not change. Has is whether the constraint has a spec, without which there are no defaults.
func (s *Schema) Apply(ctx context.Context, parameters map[string]any, hasSpec bool) (Result, error) {
	spec := map[string]any{}
	if parameters != nil {
		own, err := copyOf(parameters)
		if err != nil {
			return Result{}, err
		}
		spec["parameters"] = own
	}
	object := map[string]any{}
	if hasSpec {
		object["spec"] = spec
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.structural)
	defaulting.Default(object, s.structural)
	out := Result{Unknown: pruning.PruneWithOptions(object, s.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})}
	errs := validation.ValidateCustomResource(nil, object, s.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if s.rules != nil && len(errs) == 0 {
		broken, _ := s.rules.Validate(ctx, nil, s.structural, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, broken...)
	}
	for _, e := range errs {
		out.Problems = append(out.Problems, Problem{e.Field, e.Error()})
	}
	if spec["parameters"] == nil {
		return out, nil
	}
	raw, err := json.Marshal(spec["parameters"])
	if err != nil {
		return Result{}, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return out, dec.Decode(&out.Parameters)
}
