package policy_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
)

// limitsTemplate is a template with a schema, which begins in line 9.
func limitsTemplate(version, validation string) policy.File {
	return policy.File{Path: "t.yaml", Data: []byte(`apiVersion: templates.gatekeeper.sh/` + version + `
kind: ConstraintTemplate
metadata: {name: limits}
spec:
  crd:
    spec:
      names: {kind: Limits}
` + validation + `  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package limits
      violation[{"msg": "x"}] { input.parameters.max < 1 }
`)}
}

const limitsSchema = `      validation:
        openAPIV3Schema:
          type: object
          required: [max]
          properties:
            max: {type: integer, default: 3, maximum: 10}
            class: {type: string, enum: [a, b]}
            nested:
              type: object
              properties: {on: {type: boolean, default: true}}
            rules:
              type: array
              items:
                type: object
                properties: {key: {type: string}, weight: {type: number, default: 0.5}}
            any: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func limitsConstraint(spec string) policy.File {
	return policy.File{Path: "c.yaml", Data: []byte("apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Limits\nmetadata: {name: all}\n" + spec)}
}

// TestGatekeeper_ParametersAreThoseOfTheCluster loads constraints, and shows what their
// parameters are.
func TestGatekeeper_ParametersAreThoseOfTheCluster(t *testing.T) {
	t.Parallel()
	legacy := strings.Replace(limitsSchema, "validation:\n", "validation:\n        legacySchema: true\n", 1)
	structural := strings.Replace(limitsSchema, "validation:\n", "validation:\n        legacySchema: false\n", 1)
	withDefault := strings.Replace(limitsSchema, "required: [max]", "default: {}", 1)
	for name, test := range map[string]struct {
		version, validation, spec string
		want                      string
		unknown                   string // their lines and messages
	}{
		"no spec":        {"v1", limitsSchema, "", `null`, ""},
		"no parameters":  {"v1", limitsSchema, "spec: {match: {}}\n", `null`, ""},
		"null":           {"v1", limitsSchema, "spec: {parameters: null}\n", `null`, ""},
		"empty":          {"v1", limitsSchema, "spec: {parameters: {}}\n", `{"max":3}`, ""},
		"default itself": {"v1", withDefault, "spec: {match: {}}\n", `{"max":3}`, ""},
		"no spec at all": {"v1", withDefault, "", `null`, ""},
		"said":           {"v1", limitsSchema, "spec: {parameters: {max: 5}}\n", `{"max":5}`, ""},
		"null has the default": {
			"v1", limitsSchema, "spec: {parameters: {max: null, class: null}}\n", `{"max":3}`, "",
		},
		"below what is there": {
			"v1", limitsSchema, "spec: {parameters: {nested: {}, rules: [{key: x}, {weight: 2}]}}\n",
			`{"max":3,"nested":{"on":true},"rules":[{"key":"x","weight":0.5},{"weight":2}]}`, "",
		},
		"unknown": {
			"v1", limitsSchema, "spec:\n  parameters:\n    maximum: 1\n    rules:\n    - kye: x\n    any: {a: {b: 1}}\n",
			`{"any":{"a":{"b":1}},"max":3,"rules":[{"weight":0.5}]}`,
			"6 spec.parameters.maximum is not in the schema of Limits, and is left out; 8 spec.parameters.rules[0].kye is not in the schema of Limits, and is left out",
		},
		"no schema":         {"v1", "", "spec: {parameters: {a: 1}}\n", `null`, "4 spec.parameters is not in the schema of Limits, and is left out"},
		"legacy":            {"v1", legacy, "spec: {parameters: {maximum: 1, rules: [{kye: x}]}}\n", `{"max":3,"maximum":1,"rules":[{"kye":"x","weight":0.5}]}`, ""},
		"older":             {"v1beta1", limitsSchema, "spec: {parameters: {maximum: 1}}\n", `{"max":3,"maximum":1}`, ""},
		"older, no schema":  {"v1alpha1", "", "spec: {parameters: {a: 1}}\n", `{"a":1}`, ""},
		"older, structural": {"v1beta1", structural, "spec: {parameters: {maximum: 1}}\n", `{"max":3}`, "4 spec.parameters.maximum is not in the schema of Limits, and is left out"},
		"older, not structural": {
			"v1beta1", "      validation: {openAPIV3Schema: {properties: {list: {type: array, items: {properties: {a: {type: string}}}}}}}\n",
			"spec: {parameters: {list: [{a: x, b: 1}]}}\n", `{"list":[{"a":"x","b":1}]}`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := loadFiles(t, limitsTemplate(test.version, test.validation), limitsConstraint(test.spec))
			c := set.Constraints[0]
			got, err := json.Marshal(c.Parameters)
			if err != nil || string(got) != test.want {
				t.Errorf("parameters %s (%v), want %s", got, err, test.want)
			}
			var unknown []string
			for _, u := range c.Unknown {
				unknown = append(unknown, string(rune('0'+u.Line))+" "+u.Message)
			}
			if got := strings.Join(unknown, "; "); got != test.unknown {
				t.Errorf("unknown %q, want %q", got, test.unknown)
			}
			if got := len(policy.Lint(set)); got != len(unknown) {
				t.Errorf("lint warns %d times of %d fields", got, len(unknown))
			}
			bindings, _ := policy.DefaultBindings(set, nil)
			if got, _ := json.Marshal(bindings[0].Parameters); string(got) != test.want {
				t.Errorf("the binding has parameters %s, want %s", got, test.want)
			}
		})
	}
}

// TestGatekeeper_InvalidParametersAreRefused loads what a cluster refuses.
func TestGatekeeper_InvalidParametersAreRefused(t *testing.T) {
	t.Parallel()
	rule := strings.Replace(limitsSchema, "required: [max]\n", "x-kubernetes-validations: [{rule: \"self.max > 1\", message: two at least}]\n", 1)
	for name, test := range map[string]struct {
		validation, spec, want string
	}{
		"type":       {limitsSchema, "spec:\n  parameters:\n    max: many\n", "c.yaml:6:10: error: constraint Limits/all: spec.parameters.max: Invalid value"},
		"bound":      {limitsSchema, "spec:\n  parameters:\n    max: 11\n", "c.yaml:6:10: error: constraint Limits/all: spec.parameters.max: Invalid value: 11"},
		"enum":       {limitsSchema, "spec:\n  parameters:\n    class: c\n", `c.yaml:6:12: error: constraint Limits/all: spec.parameters.class: Unsupported value: "c"`},
		"item":       {limitsSchema, "spec:\n  parameters:\n    rules:\n    - {}\n    - {key: 1}\n", "c.yaml:8:13: error: constraint Limits/all: spec.parameters.rules[1].key: Invalid value"},
		"required":   {strings.Replace(limitsSchema, "default: 3, ", "", 1), "spec:\n  parameters:\n    nested: {}\n", "c.yaml:6:5: error: constraint Limits/all: spec.parameters.max: Required value"},
		"rule":       {rule, "spec:\n  parameters:\n    max: 1\n", "c.yaml:6:5: error: constraint Limits/all: spec.parameters: Invalid value: two at least"},
		"structural": {strings.Replace(limitsSchema, "type: object\n              properties: {on", "properties: {on", 1), "", "t.yaml:10:11: error: openAPIV3Schema: properties[nested].type: Required value"},
		"default":    {strings.Replace(limitsSchema, "default: 3", "default: three", 1), "", "t.yaml:10:11: error: openAPIV3Schema: properties[max].default: Invalid value"},
		"no type":    {strings.Replace(limitsSchema, "type: boolean", "type: bool", 1), "", `t.yaml:10:11: error: openAPIV3Schema: properties[nested].properties[on].type: "bool" is not one of`},
		"no schema":  {strings.Replace(limitsSchema, "required: [max]", "required: max", 1), "", "t.yaml:10:11: error: openAPIV3Schema: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := policy.Load([]policy.Source{{Files: []policy.File{limitsTemplate("v1", test.validation), limitsConstraint(test.spec)}}}, policy.LoadOptions{})
			var list policy.LoadErrors
			if !errors.As(err, &list) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}
