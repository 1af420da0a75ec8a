package gatekeepertest

import (
	"testing"

	"federator.dev/federator/pkg/policy"
)

// TestTemplates_AreCompiled: OPA interprets none of the templates that the other tests compare.
func TestTemplates_AreCompiled(t *testing.T) {
	files := templateFiles(t)
	set, err := policy.Load([]policy.Source{{Files: files}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	interpreted := 0
	for _, f := range policy.Lint(set) {
		if f.Code == "interpreted" {
			interpreted++
			t.Error(f)
		}
	}
	t.Logf("%d of %d templates are compiled", len(set.Packages)-interpreted, len(set.Packages))
}
