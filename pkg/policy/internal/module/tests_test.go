package module_test

import (
	"testing"

	"federator.dev/federator/pkg/policy/internal/module"
)

// TestSet_TestsOfAPackage are counted by name, wherever its test files are.
func TestSet_TestsOfAPackage(t *testing.T) {
	meta := "# METADATA\n# title: x\n# custom: {severity: low, kinds: [Pod]}\n"
	set, err := module.Load([]module.Source{{Name: "s", Files: []module.File{
		{Path: "a/a.rego", Data: []byte(meta + "package acme.a\n\nviolation contains {\"msg\": \"a\"} if input.ref.name == \"a\"\n")},
		{Path: "b/b.rego", Data: []byte(meta + "package acme.b\n\nviolation contains {\"msg\": \"b\"} if input.ref.name == \"b\"\n")},
		{Path: "a/a_test.rego", Data: []byte("package acme.a_test\n\ntest_one if true\n\ntest_two if 1 == 1\n\ntest_two if 2 == 2\n\ntodo_test_three if false\n\nhelper := 1\n")},
		{Path: "a/more_test.rego", Data: []byte("package acme.a\n\ntest_four if true\n")},
	}}}, module.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for pkg, want := range map[string]int{"acme.a": 3, "acme.b": 0, "acme": 0, "acme.a_test": 0, "nothing": 0} {
		if got := set.TestsOf(pkg); got != want {
			t.Errorf("%s has %d tests, want %d", pkg, got, want)
		}
	}
}

// TestSet_RuleAtALine is the one that begins last before it.
func TestSet_RuleAtALine(t *testing.T) {
	set, err := module.Load([]module.Source{{Files: []module.File{{Path: "a.rego", Data: []byte("# METADATA\n# title: x\n# custom: {severity: low, kinds: [Pod]}\npackage a\n\nviolation contains {\"msg\": \"a\"} if {\n\thelper\n}\n\nhelper if {\n\tinput.ref.name == \"a\"\n}\n")}}}}, module.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range map[int]string{1: "", 6: "violation", 7: "violation", 10: "helper", 11: "helper"} {
		if got := set.RuleAt("a.rego", row); got != want {
			t.Errorf("line %d is of %q, want %q", row, got, want)
		}
	}
	if got := set.RuleAt("b.rego", 6); got != "" {
		t.Errorf("of no file: %q", got)
	}
}
