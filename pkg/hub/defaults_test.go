package hub

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
)

// specSchema returns the schema of FleetPolicy's spec.
func specSchema(t *testing.T) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile("../../charts/federator/crds/federator.dev_fleetpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	for _, v := range crd.Spec.Versions {
		if v.Name == "v1alpha1" {
			spec := v.Schema.OpenAPIV3Schema.Properties["spec"]
			return &spec
		}
	}
	t.Fatal("the CRD has no version v1alpha1")
	return nil
}

// instance returns an object of a schema that has all objects and lists that may be in it, and no
// other fields than those that set returns a value for, of fields that have a default.
func instance(path string, s *apiextensionsv1.JSONSchemaProps, set func(path string, of *apiextensionsv1.JSONSchemaProps) any) map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		of, at := s.Properties[name], path+"."+name
		switch {
		case of.Default != nil && string(of.Default.Raw) != "{}":
			if value := set(at, &of); value != nil {
				out[name] = value
			}
		case len(of.Properties) > 0:
			out[name] = instance(at, &of, set)
		case of.Items != nil && len(of.Items.Schema.Properties) > 0:
			out[name] = []any{instance(at+"[]", of.Items.Schema, set)}
		}
	}
	return out
}

// another returns a valid value that is not the default.
func another(t *testing.T, path string, of *apiextensionsv1.JSONSchemaProps) any {
	t.Helper()
	var def any
	if err := json.Unmarshal(of.Default.Raw, &def); err != nil {
		t.Fatal(err)
	}
	switch def := def.(type) {
	case float64:
		return def + 1
	case map[string]any:
		for field, value := range def {
			if n, is := value.(float64); is {
				return map[string]any{field: n + 1}
			}
		}
	case string:
		for _, e := range of.Enum {
			if string(e.Raw) != string(of.Default.Raw) {
				return json.RawMessage(e.Raw)
			}
		}
		if _, err := time.ParseDuration(def); err == nil {
			return "17m"
		}
		return "Europe/Berlin"
	}
	t.Fatalf("%s: the test knows no other value than %s", path, of.Default.Raw)
	return nil
}

// TestRolloutGeneration_IgnoresTheDefaultsOfTheCRD: where a field has its default, written out by
// its author or filled in by the API server, that begins no other rollout, and a commit without
// it is no other enforcement. Any other value is another rollout.
func TestRolloutGeneration_IgnoresTheDefaultsOfTheCRD(t *testing.T) {
	t.Parallel()
	schema := specSchema(t)
	of := func(set func(path string, of *apiextensionsv1.JSONSchemaProps) any) (generation, enforcement string) {
		t.Helper()
		text, err := json.Marshal(instance("spec", schema, set))
		if err != nil {
			t.Fatal(err)
		}
		var spec v1alpha1.FleetPolicySpec
		if err := json.Unmarshal(text, &spec); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if generation, _, err = rolloutGeneration(&spec, nil, "digest"); err != nil {
			t.Fatal(err)
		}
		return generation, enforcementText(&spec)
	}
	defaults := map[string]*apiextensionsv1.JSONSchemaProps{}
	generation, enforcement := of(func(path string, of *apiextensionsv1.JSONSchemaProps) any {
		defaults[path] = of
		return nil
	})
	for path, field := range defaults {
		only := func(value any) func(string, *apiextensionsv1.JSONSchemaProps) any {
			return func(at string, _ *apiextensionsv1.JSONSchemaProps) any {
				if at == path {
					return value
				}
				return nil
			}
		}
		if g, e := of(only(json.RawMessage(field.Default.Raw))); g != generation || e != enforcement {
			t.Errorf("%s: its default %s is another generation or enforcement", path, field.Default.Raw)
		}
		g, e := of(only(another(t, path, field)))
		if strings.HasPrefix(path, "spec.rollout.") { // how versions roll out is no version; waves of it are the policy's where it has none
			if g != generation || e != enforcement {
				t.Errorf("%s: %v is another generation or enforcement", path, another(t, path, field))
			}
			continue
		}
		if g == generation {
			t.Errorf("%s: %v is the same generation as its default", path, another(t, path, field))
		}
		if verdicts := strings.HasPrefix(path, "spec.unknown."); !verdicts && e == enforcement { // those are compared by themselves
			t.Errorf("%s: %v is the same enforcement as its default", path, another(t, path, field))
		}
	}
	if g, e := of(func(_ string, of *apiextensionsv1.JSONSchemaProps) any { return json.RawMessage(of.Default.Raw) }); g != generation || e != enforcement {
		t.Error("all defaults are another generation or enforcement")
	}
	if len(defaults) < 14 {
		t.Errorf("defaults found: %s", fmt.Sprint(slices.Sorted(maps.Keys(defaults))))
	}
}
