package clitest

import (
	_ "embed"
	"encoding/json"
	"testing"

	"github.com/open-policy-agent/opa/v1/rego"

	"federator.dev/federator/internal/cli/report/sarif"
)

// SARIFSchema is the JSON schema of SARIF 2.1.0, descriptions cut.
//
//go:embed testdata/sarif-2.1.0.schema.json
var SARIFSchema string

// SARIF holds a document to the standard's schema, descriptions cut.
func SARIF(t testing.TB, text string) sarif.Log {
	t.Helper()
	rs, err := rego.New(rego.Query("json.match_schema(input.document, input.schema)"),
		rego.Input(map[string]any{"document": text, "schema": SARIFSchema}), rego.StrictBuiltinErrors(true)).Eval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answer, ok := rs[0].Expressions[0].Value.([]any)
	if !ok || answer[0] != true {
		t.Errorf("not SARIF 2.1.0: %v\n%s", answer, text)
	}
	var log sarif.Log
	if err := json.Unmarshal([]byte(text), &log); err != nil {
		t.Fatal(err)
	}
	return log
}
