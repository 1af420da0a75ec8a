package module

import (
	"context"
	"maps"
	"slices"

	"federator.dev/federator/pkg/policy/internal/constraintschema"
	"federator.dev/federator/pkg/policy/internal/manifest"
)

// parameters gives the constraints the parameters that they would have in a cluster: with
// defaults, without unknown fields. Constraints whose parameters are invalid are errors.
func (l *loader) parameters(templates map[string]*manifest.Template) {
	defer recoverPanic("", &l.findings, func() {})
	ctx := context.Background() //nolint:forbidigo // Load takes none: what rules in CEL cost is bounded by the API server's budget
	schemas := map[string]*constraintschema.Schema{}
	for _, kind := range slices.Sorted(maps.Keys(templates)) {
		t := templates[kind]
		schema, problems := constraintschema.New(ctx, t.Schema, t.LegacySchema)
		for _, p := range problems {
			l.problem("schema", t.SchemaAt, "openAPIV3Schema: %s", p)
		}
		schemas[kind] = schema
	}
	for _, c := range l.set.Constraints {
		schema := schemas[c.Kind]
		if schema == nil {
			continue // which is a finding
		}
		_, hasSpec := c.Body["spec"].(map[string]any)
		result, err := schema.Apply(ctx, c.Parameters, hasSpec)
		if err != nil {
			l.problem("parameters", c.Place("spec.parameters"), "constraint %s: spec.parameters: %v", c.FullName(), err)
			continue
		}
		for _, p := range result.Problems {
			l.problem("parameters", c.Place(p.Path), "constraint %s: %s", c.FullName(), p.Message)
		}
		c.Parameters = result.Parameters
		for _, path := range result.Unknown {
			c.Unknown = append(c.Unknown, manifest.Problem{Position: c.Place(path), Message: path + " is not in the schema of " + c.Kind + ", and is left out"})
		}
	}
}
