package module_test

import (
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/internal/module"
)

// TestFingerprints_FollowEveryReferenceToALibrary changes a library that a policy reaches by
// its parent, by its whole path, by a reference, and by another library; and a package
// that it reaches in no way.
func TestFingerprints_FollowEveryReferenceToALibrary(t *testing.T) {
	head := "# METADATA\n# title: x\n# custom: {severity: low, kinds: [\"Pod\"]}\npackage test.user\n\n"
	for name, user := range map[string]string{
		"its parent":      "import data.federator.lib\n\nviolation contains {\"msg\": \"x\"} if lib.sizes.large(input.object.spec.n)\n",
		"parent's parent": "import data.federator\n\nviolation contains {\"msg\": \"x\"} if federator.lib.sizes.large(input.object.spec.n)\n",
		"its path":        "import data.federator.lib.sizes\n\nviolation contains {\"msg\": \"x\"} if sizes.large(input.object.spec.n)\n",
		"an alias":        "import data.federator.lib as l\n\nviolation contains {\"msg\": \"x\"} if l.sizes.large(input.object.spec.n)\n",
		"a reference":     "violation contains {\"msg\": \"x\"} if data.federator.lib[\"sizes\"].large(input.object.spec.n)\n",
		"another library": "import data.federator.lib.more\n\nviolation contains {\"msg\": \"x\"} if more.large(input.object.spec.n)\n",
	} {
		print := func(lib, other string) string {
			t.Helper()
			var src module.Source
			for path, text := range map[string]string{
				"user.rego":  head + user,
				"lib.rego":   "package federator.lib.sizes\n\nlarge(n) if n > " + lib + "\n",
				"more.rego":  "package federator.lib.more\n\nimport data.federator.lib\n\nlarge(n) if lib.sizes.large(n)\n",
				"other.rego": "# METADATA\n# title: x\n# custom: {severity: low, kinds: [\"Pod\"]}\npackage test.other\n\nviolation contains {\"msg\": \"x\"} if input.object.spec.n == " + other + "\n",
			} {
				src.Files = append(src.Files, module.File{Path: path, Data: []byte(text)})
			}
			set, err := module.Load([]module.Source{src}, module.Options{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return set.Fingerprints()["test.user"]
		}
		if print("2", "1") == print("9", "1") {
			t.Errorf("by %s: a change of the library is not noticed", name)
		}
		if first, again := print("2", "1"), print("2", "1"); first != again {
			t.Errorf("by %s: nothing changed", name)
		}
		if print("2", "1") != print("2", "2") {
			t.Errorf("by %s: a change of what it does not reach is noticed", name)
		}
	}
}

func constraint(kind, name string) string {
	return `{"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "` + kind + `", "metadata": {"name": "` + name + `"}, "spec": {"parameters": {}, "match": {"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]}}}`
}

// TestSet_DigestFollowsWhatVerdictsFollowFrom changes one thing at a time.
func TestSet_DigestFollowsWhatVerdictsFollowFrom(t *testing.T) {
	files := map[string]string{
		"user.rego": "# METADATA\n# title: x\n# custom: {severity: low, kinds: [\"Pod\"], remedies: [{action: patch, kind: Pod}]}\npackage test.user\n\nimport data.federator.lib.sizes\n\n" +
			"violation contains {\"msg\": \"x\"} if sizes.large(count(data.fleet.views[\"test.views\"].names[input.ref.name]))\n",
		"lib.rego":   "package federator.lib.sizes\n\nlarge(n) if n > 2\n",
		"views.rego": "# METADATA\n# title: x\n# custom: {severity: low, kinds: [\"Pod\"]}\npackage test.views\n\nview.names[input.ref.name] contains 1 if input.ref\n",
		"other.rego": "# METADATA\n# title: x\n# custom: {severity: low, kinds: [\"Pod\"]}\npackage test.other\n\nviolation contains {\"msg\": \"x\"} if input.object.spec.n == 1\n",
		"template.yaml": `{"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "first"}, "spec": {"crd": {"spec": {"names": {"kind": "First"},
			"validation": {"openAPIV3Schema": {"type": "object", "properties": {"word": {"type": "string", "default": "a"}, "more": {"type": "string"}}}}}},
			"targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": "package x\n\nviolation[{\"msg\": msg}] {\n  msg := input.parameters.word\n}\n"}]}}`,
		"one.yaml": constraint("First", "one"), "two.yaml": constraint("First", "two"), "else.yaml": constraint("Second", "one"),
		"second.yaml": `{"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "second"}, "spec": {"crd": {"spec": {"names": {"kind": "Second"}}},
			"targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": "package x\n\nviolation[{\"msg\": \"x\"}] {\n  true\n}\n"}]}}`,
	}
	digest := func(pkg, change, old, text, dir string) string {
		t.Helper()
		var src module.Source
		for path, data := range files {
			if path == change {
				if !strings.Contains(data, old) {
					t.Fatalf("%s has no %q", path, old)
				}
				data = strings.Replace(data, old, text, 1)
			}
			src.Files = append(src.Files, module.File{Path: dir + path, Data: []byte(data)})
		}
		set, err := module.Load([]module.Source{src}, module.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return set.Digest(pkg)
	}
	first := map[string]string{}
	for _, pkg := range []string{"test.user", "gatekeeper.first"} {
		if first[pkg] = digest(pkg, "", "", "", ""); len(first[pkg]) != 64 {
			t.Fatalf("digest %q", first[pkg])
		}
	}
	for _, test := range []struct {
		name, file, old, text, dir string
		same                       bool
	}{
		{"nothing", "", "", "", "", true},
		{"the place of the files", "", "", "", "deep/", true},
		{"a package that it does not reach", "other.rego", "n == 1", "n == 2", "", true},
		{"its rule", "user.rego", "\"msg\": \"x\"", "\"msg\": \"y\"", "", false},
		{"its remedies", "user.rego", "action: patch", "action: delete", "", false},
		{"its severity", "user.rego", "severity: low", "severity: high", "", false},
		{"its library", "lib.rego", "n > 2", "n > 3", "", false},
		{"a view that it reads", "views.rego", "contains 1", "contains 2", "", false},
		{"its template's rule", "template.yaml", "input.parameters.word", "input.parameters.more", "", false},
		{"a default of its template", "template.yaml", `"default": "a"`, `"default": "b"`, "", false},
		{"a parameter of a constraint", "two.yaml", `"parameters": {}`, `"parameters": {"more": "c"}`, "", false},
		{"what a constraint matches", "one.yaml", `["Pod"]`, `["Node"]`, "", false},
		{"a constraint's name", "one.yaml", `"one"`, `"three"`, "", false},
		{"a constraint's annotation", "one.yaml", `"name"`, `"annotations": {"x": "y"}, "name"`, "", false},
		{"a constraint of another template", "else.yaml", `["Pod"]`, `["Node"]`, "", true},
	} {
		pkg := "test.user"
		if strings.HasSuffix(test.file, ".yaml") {
			pkg = "gatekeeper.first"
		}
		if got := digest(pkg, test.file, test.old, test.text, test.dir); (got == first[pkg]) != test.same {
			t.Errorf("%s: the digest is the same: %v, want %v", test.name, got == first[pkg], test.same)
		}
	}
}
