package module_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/internal/module"
)

const besideHead = "# METADATA\n# title: x\n# custom: {severity: low, kinds: [\"Pod\"]}\n"

// besideFiles are two sources: packages of one read each other's views, and one of two reads a view of one.
func besideFiles() map[string]string {
	return map[string]string{
		"one/base.rego":   besideHead + "package test.base\n\nview.names[input.ref.name] contains 1 if input.ref\n\nview.kinds[input.ref.kind] contains 1 if input.ref\n",
		"one/user.rego":   besideHead + "package test.user\n\nviolation contains {\"msg\": \"x\"} if data.fleet.views[\"test.base\"].names[input.ref.name]\n",
		"one/alone.rego":  besideHead + "package test.alone\n\nviolation contains {\"msg\": \"x\"} if input.object.spec.n == 1\n",
		"two/reader.rego": besideHead + "package test.reader\n\nviolation contains {\"msg\": \"x\"} if data.fleet.views[\"test.base\"].names[input.ref.name]\n",
		"two/other.rego":  besideHead + "package test.other\n\nviolation contains {\"msg\": \"x\"} if input.object.spec.n == 2\n",
	}
}

// loadSources loads files by source/path, with others instead; "" is none.
func loadSources(t *testing.T, instead map[string]string) *module.Set {
	t.Helper()
	files := besideFiles()
	for path, text := range instead {
		files[path] = text
	}
	var sources []module.Source
	for _, name := range []string{"one", "two"} {
		s := module.Source{Name: name}
		for at, text := range files {
			if path, of := strings.CutPrefix(at, name+"/"); of && text != "" {
				s.Files = append(s.Files, module.File{Path: path, Data: []byte(text)})
			}
		}
		sources = append(sources, s)
	}
	set, err := module.Load(sources, module.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func packageNames(set *module.Set) (names []string) {
	for _, p := range set.Packages {
		names = append(names, p.Name)
	}
	return names
}

func TestBeside_HasWhatDiffers(t *testing.T) {
	t.Parallel()
	active := loadSources(t, nil)
	if module.Beside(active, nil) != active {
		t.Error("with no candidate it is another set")
	}
	base := besideFiles()["one/base.rego"]
	one := loadSources(t, map[string]string{
		"one/base.rego": "# moved down\n" + strings.ReplaceAll(base, "contains 1 if input.ref", "contains 2 if input.ref"),
		"one/new.rego":  besideHead + "package test.new\n\nviolation contains {\"msg\": \"x\"} if input.object.spec.n == 3\n",
	})
	two := loadSources(t, map[string]string{"two/other.rego": strings.ReplaceAll(besideFiles()["two/other.rego"], "== 2", "== 4")})
	set := module.Beside(active, []module.Candidate{{Source: "one", Set: one}, {Source: "two", Set: two}})
	name := func(of *module.Set, x string) string { return x + "@" + of.Digest(x)[:12] }
	// test.user itself has not changed, but what it reads has.
	want := append(packageNames(active), name(one, "test.base"), name(one, "test.user"), name(one, "test.new"), name(two, "test.other"))
	slices.Sort(want)
	if got := packageNames(set); !slices.Equal(got, want) {
		t.Fatalf("packages are %v, want %v", got, want)
	}
	for _, x := range []string{"test.base", "test.user", "test.new"} {
		p := set.Package(set.Candidate(x))
		if p == nil || p.VersionOf() != x || p.Path() != x || p.Compiler != one.Compiler || set.Of(p) != one {
			t.Errorf("the candidate of %s is %+v", x, p)
			continue
		}
		if set.Digest(p.Name) != one.Digest(x) || set.Version(p.Name) != one.Version(x) || set.Fingerprints()[p.Name] != one.Fingerprints()[x] {
			t.Errorf("%s has another digest than %s of its candidate", p.Name, x)
		}
	}
	for _, x := range packageNames(active) {
		if set.Package(x) != active.Package(x) || set.Digest(x) != active.Digest(x) || set.Package(x).VersionOf() != "" {
			t.Errorf("%s is another", x)
		}
	}
	if set.Candidate("test.alone") != "" || set.Candidate("test.reader") != "" {
		t.Error("what has not changed has a candidate")
	}
	reads := func(pkg string) string { return fmt.Sprint(set.Package(pkg).Reads.Views) }
	if got, want := reads(set.Candidate("test.user")), fmt.Sprintf("[{%s names}]", name(one, "test.base")); got != want {
		t.Errorf("the candidate reads %s, want %s", got, want)
	}
	if got, want := reads("test.reader"), "[{test.base names}]"; got != want || reads("test.user") != want {
		t.Errorf("others read %s", got)
	}
}

// TestBeside_FilesAreTheCandidates asks of files that both sets have.
func TestBeside_FilesAreTheCandidates(t *testing.T) {
	t.Parallel()
	active := loadSources(t, map[string]string{
		"one/alone_test.rego": "package test.alone_test\n\nimport data.test.alone\n\ntest_one if count(alone.violation) == 0 with input as {}\n",
	})
	next := loadSources(t, map[string]string{
		"one/alone.rego":      besideHead + "package test.alone\n\nsmall if input.object.spec.n < 2\n\nviolation contains {\"msg\": \"x\"} if small\n",
		"one/alone_test.rego": "package test.alone_test\n\nimport data.test.alone\n\ntest_one if count(alone.violation) == 0 with input as {}\n\ntest_two if not alone.small with input as {}\n",
	})
	set := module.Beside(active, []module.Candidate{{Source: "one", Set: next}})
	x := set.Candidate("test.alone")
	files, was := set.Files(x), set.Files("test.alone")
	if len(files) != 1 || files[0].Path != "one/alone.rego" || !strings.Contains(string(files[0].Data), "small") || len(was) != 1 || strings.Contains(string(was[0].Data), "small") {
		t.Errorf("files are %v, and were %v", files, was)
	}
	of := set.Of(set.Package(x))
	if got := of.RuleAt("one/alone.rego", 6); got != "small" {
		t.Errorf("the line is of %q", got)
	}
	if got := set.RuleAt("one/alone.rego", 6); got != "violation" {
		t.Errorf("the active line is of %q", got)
	}
	if of.SameText(set, "one/alone.rego") || !of.SameText(set, "one/base.rego") {
		t.Error("the wrong texts are the same")
	}
	if set.TestsOf(x) != 2 || set.TestsOf("test.alone") != 1 {
		t.Errorf("it has %d tests, and had %d", set.TestsOf(x), set.TestsOf("test.alone"))
	}
}

// TestBeside_FollowsMetadata changes what METADATA says, and no rule.
func TestBeside_FollowsMetadata(t *testing.T) {
	t.Parallel()
	active := loadSources(t, nil)
	for _, change := range [][2]string{
		{"severity: low", "severity: high"},
		{`kinds: ["Pod"]`, `kinds: ["Node"]`},
		{`kinds: ["Pod"]`, `kinds: ["Pod"], parameters: {type: object, properties: {max: {type: integer, default: 1}}}`},
		{`kinds: ["Pod"]`, `kinds: ["Pod"], remedies: [{action: delete, kind: Pod}]`},
	} {
		next := loadSources(t, map[string]string{"one/alone.rego": strings.ReplaceAll(besideFiles()["one/alone.rego"], change[0], change[1])})
		set := module.Beside(active, []module.Candidate{{Source: "one", Set: next}})
		if set.Candidate("test.alone") == "" {
			t.Errorf("%s is no other version", change[1])
		}
	}
}
