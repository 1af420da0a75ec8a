package policysource_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// TestManager_SaysWhoUsesWhatDoesNotRollOut: policies of other sources have no version that reads a commit's views, and take those at once.
func TestManager_SaysWhoUsesWhatDoesNotRollOut(t *testing.T) {
	root := t.TempDir()
	library, users := newRepo(t, root, "library"), newRepo(t, root, "users")
	head, _, _ := strings.Cut(rule("words", "x"), "violation contains")
	helper := func(label string) map[string]string {
		return map[string]string{"policies/words.rego": head + "view.words[input.ref.namespace] contains input.object.metadata.labels." + label + "\n"}
	}
	uses := strings.Replace(rule("uses", "x"), "input.object.metadata.labels.x", `some _ in data.fleet.views["words"].words[input.ref.namespace]`, 1)
	first := commit(t, library, helper("one"))
	one := commit(t, users, map[string]string{"policies/uses.rego": uses, "policies/other.rego": rule("other", "x")})
	src := rolls("library", library)
	opts := options()
	opts.Test = func(context.Context, policysource.Candidate) ([]policy.Finding, error) { return nil, nil }
	m := start(t, opts, src, rolls("users", users))
	active(t, m, "library", first)
	active(t, m, "users", one)
	second := commit(t, library, helper("two"))
	syncs(t, m, "library")
	warned := func(st *policysource.State) {
		t.Helper()
		if list := st.Status["library"].Findings; !slices.ContainsFunc(list, func(f policy.Finding) bool {
			return f.Code == "rollout-others" && f.Severity == policy.SeverityWarning && strings.HasSuffix(f.Message, "without a rollout: uses")
		}) {
			t.Errorf("%v", list)
		}
	}
	warned(rollingOut(t, m, "library", second))
	src.Promoted = second
	if err := m.SetSources([]policysource.Source{src, rolls("users", users)}); err != nil {
		t.Fatal(err)
	}
	warned(active(t, m, "library", second))
}
