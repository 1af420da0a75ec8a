// Package openapi holds answers to the OpenAPI document that describes them.
package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// Conforms reports where a body of JSON is not as a schema of the document says, and
// where it has properties that the schema does not know.
func Conforms(doc *spec3.OpenAPI, schema *spec.Schema, body []byte) error {
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	whole, err := closed(doc, *schema)
	if err != nil {
		return err
	}
	return validate.AgainstSchema(&whole, value, strfmt.Default)
}

// closed returns a schema with what it refers to in its place, that allows for no
// properties that it does not know.
func closed(doc *spec3.OpenAPI, schema spec.Schema) (spec.Schema, error) {
	if ref := schema.Ref.String(); ref != "" {
		found := doc.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
		if found == nil {
			return schema, fmt.Errorf("%s is not in the document", ref)
		}
		return closed(doc, *found)
	}
	var err error
	if schema.Items != nil {
		var items spec.Schema
		if items, err = closed(doc, *schema.Items.Schema); err != nil {
			return schema, err
		}
		schema.Items = &spec.SchemaOrArray{Schema: &items}
	}
	if schema.AdditionalProperties != nil {
		var values spec.Schema
		if values, err = closed(doc, *schema.AdditionalProperties.Schema); err != nil {
			return schema, err
		}
		schema.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &values}
	}
	if schema.Properties != nil {
		schema.Properties = maps.Clone(schema.Properties)
		schema.AdditionalProperties = &spec.SchemaOrBool{}
	}
	for name, property := range schema.Properties {
		if schema.Properties[name], err = closed(doc, property); err != nil {
			return schema, err
		}
	}
	schema.AnyOf = slices.Clone(schema.AnyOf)
	for i := range schema.AnyOf {
		if schema.AnyOf[i], err = closed(doc, schema.AnyOf[i]); err != nil {
			return schema, err
		}
	}
	return schema, nil
}
