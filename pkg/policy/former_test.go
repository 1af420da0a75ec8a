package policy_test

import (
	"testing"

	"federator.dev/federator/pkg/policy"
)

// formerSources are policies of "one", which read a view of "two" where reads is its package.
func formerSources(t *testing.T, label, reads string, two ...string) *policy.Set {
	t.Helper()
	const head = "# METADATA\n# title: T\n# custom: {severity: low, kinds: [Deployment.apps]}\npackage "
	text := head + "acme.one\n\nview.seen[input.ref.name] contains \"" + label + "\"\n\nviolation contains {\"msg\": \"m\"} if {\n\tinput.object.metadata.labels." + label + "\n"
	if reads != "" {
		text += "\tnot data.fleet.views[\"" + reads + "\"].names[input.ref.name]\n"
	}
	sources := []policy.Source{{Name: "one", Files: []policy.File{{Path: "one.rego", Data: []byte(text + "}\n")}}}, {Name: "two"}}
	for _, name := range two {
		sources[1].Files = append(sources[1].Files, policy.File{Path: name + ".rego", Data: []byte(head + name + "\n\nview.names[input.ref.name] contains true\n")})
	}
	set, err := policy.Load(sources, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestBeside_FormerReadsWhatIsThere: what another source has removed since is not taken for empty.
func TestBeside_FormerReadsWhatIsThere(t *testing.T) {
	former, newest := formerSources(t, "b", "acme.two", "acme.two"), formerSources(t, "c", "")
	for _, c := range []struct {
		active *policy.Set
		want   int
	}{{formerSources(t, "a", "", "acme.two"), 1}, {formerSources(t, "a", ""), 0}} {
		set := policy.Beside(c.active, []policy.Candidate{{Source: "one", Set: newest, Former: []*policy.Set{former}}})
		if got := set.Former("acme.one"); len(got) != c.want {
			t.Errorf("%q, want %d", got, c.want)
		}
	}
}

// TestEngine_BuildsNoViewsOfFormerVersions that nothing reads: each would take what those in effect take.
func TestEngine_BuildsNoViewsOfFormerVersions(t *testing.T) {
	former := formerSources(t, "b", "")
	set := policy.Beside(formerSources(t, "a", ""), []policy.Candidate{{Source: "one", Set: formerSources(t, "c", ""), Former: []*policy.Set{former}}})
	if len(set.Former("acme.one")) != 1 {
		t.Fatal(set.Former("acme.one"))
	}
	for pkg, want := range map[string]int{"acme.one": 2, set.Former("acme.one")[0]: 3} {
		e, _ := engineOn(t, versionWorld(t), policy.EngineOptions{Set: set, Bindings: []policy.Binding{{Name: "acme.one", Package: pkg}}})
		if got := e.Stats().Views; got != want {
			t.Errorf("%s is bound: %d views, want %d", pkg, got, want)
		}
	}
}
