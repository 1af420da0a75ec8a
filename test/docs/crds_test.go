package docs

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// customResources has all fields of the chart's CRDs.
func customResources(t *testing.T, _ *stage) string {
	files, err := filepath.Glob(filepath.Join(root, "charts/federator/crds/*.yaml"))
	must(t, err)
	var out strings.Builder
	out.WriteString("# Custom resources\n\nGenerated from the CRDs in charts/federator/crds by `make docs`; do not edit.\n")
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		var crd apiextensionsv1.CustomResourceDefinition
		must(t, yaml.UnmarshalStrict(text, &crd))
		for _, v := range crd.Spec.Versions {
			schema := v.Schema.OpenAPIV3Schema
			scope := ""
			if crd.Spec.Scope == apiextensionsv1.ClusterScoped {
				scope = " It has no namespace."
			}
			fmt.Fprintf(&out, "\n## %s\n\n`%s/%s`.%s %s\n", crd.Spec.Names.Kind, crd.Spec.Group, v.Name, scope, strings.Join(strings.Fields(schema.Description), " "))
			for _, part := range []string{"spec", "status"} {
				s, ok := schema.Properties[part]
				if !ok {
					continue
				}
				fmt.Fprintf(&out, "\n### %s of %s\n\n| Field | Type | Default | Description |\n|---|---|---|---|\n", part, crd.Spec.Names.Kind)
				fields(t, &out, part+".", s)
			}
		}
	}
	return out.String()
}

// fields writes a row for each field of a schema, and of what is in it.
func fields(t *testing.T, out *strings.Builder, prefix string, s apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		f := s.Properties[name]
		inner, suffix := f, "."
		if f.Items != nil {
			inner, suffix = *f.Items.Schema, "[]."
		}
		if f.AdditionalProperties != nil && f.AdditionalProperties.Schema != nil {
			inner, suffix = *f.AdditionalProperties.Schema, ".*."
		}
		value := ""
		if f.Default != nil {
			value = "`" + cell(string(f.Default.Raw)) + "`"
		}
		if slices.Contains(s.Required, name) {
			value = "required"
		}
		fmt.Fprintf(out, "| `%s%s` | %s | %s | %s |\n", prefix, name, typeOf(t, f), value, cell(f.Description))
		if name != "conditions" { // which are as everywhere
			fields(t, out, prefix+name+suffix, inner)
		}
	}
}

// typeOf names a type, with the values of an enumeration.
func typeOf(t *testing.T, s apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.XIntOrString:
		return "integer or string"
	case len(s.Enum) > 0:
		var values []string
		for _, e := range s.Enum {
			var v any
			must(t, json.Unmarshal(e.Raw, &v))
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		return strings.Join(values, ", ")
	case s.Items != nil:
		return "list of " + typeOf(t, *s.Items.Schema)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(t, *s.AdditionalProperties.Schema)
	case s.Format != "":
		return s.Type + " (" + s.Format + ")"
	case s.Type == "":
		return "any"
	}
	return s.Type
}
