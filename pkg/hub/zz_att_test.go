package hub

import (
	"testing"

	"federator.dev/federator/pkg/policy"
)

func setOf(t *testing.T, files map[string]string) *policy.Set {
	t.Helper()
	source := policy.Source{Name: "team"}
	for path, text := range files {
		source.Files = append(source.Files, policy.File{Path: path, Data: []byte(text)})
	}
	set, err := policy.Load([]policy.Source{source}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func addedRule(pkg, label string) string {
	return "# METADATA\n# title: T\n# custom: {severity: low, kinds: [ConfigMap]}\npackage acme." + pkg + "\n\nviolation contains {\"msg\": \"m\"} if input.object.data." + label + "\n"
}

// TestDefaultBindings_OfTheNewestCommitOnly: a commit that rolled out before may have had versions of what another one adds, too.
func TestDefaultBindings_OfTheNewestCommitOnly(t *testing.T) {
	active := setOf(t, map[string]string{"old.rego": addedRule("old", "x")})
	former := setOf(t, map[string]string{"old.rego": addedRule("old", "x"), "added.rego": addedRule("added", "x"), "gone.rego": addedRule("gone", "x")})
	newest := setOf(t, map[string]string{"old.rego": addedRule("old", "x"), "added.rego": addedRule("added", "y")})
	set := policy.Beside(active, []policy.Candidate{{Source: "team", Set: newest, Former: []*policy.Set{former}}})
	got := defaultBindings(set, nil)
	if len(got) != 2 || got[1].Name != "acme.added" || got[1].Package != set.Candidate("acme.added") {
		t.Errorf("%+v", got)
	}
	if _, err := policy.ValidateBindings(set, got); err != nil {
		t.Error(err)
	}
}
// TestDefaultBindings_OfAPackageThatHadViewsOnly, or needed parameters: nothing was bound that its version could be judged beside.
func TestDefaultBindings_OfAPackageThatHadViewsOnly(t *testing.T) {
	head := "# METADATA\n# title: T\n# custom: {severity: low, kinds: [ConfigMap]%s}\npackage acme.views\n\nview.names[input.ref.name] contains 1\n"
	_ = head
	views := "# METADATA\n# title: T\n# custom: {severity: low, kinds: [ConfigMap]}\npackage acme.views\n\nview.names[input.ref.name] contains 1\n"
	active := setOf(t, map[string]string{"p.rego": views})
	next := setOf(t, map[string]string{"p.rego": views + "\nviolation contains {\"msg\": \"m\"} if input.object.data.x\n"})
	set := policy.Beside(active, []policy.Candidate{{Source: "team", Set: next}})
	got := defaultBindings(set, nil)
	if len(got) != 1 || got[0].Name != "acme.views" || got[0].Package != set.Candidate("acme.views") {
		t.Errorf("%+v", got)
	}
}
