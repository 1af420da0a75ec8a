package policysource_test

import (
	"testing"

	"federator.dev/federator/pkg/policysource"
)

// TestManager_SharedKeepsNoReplacedCommits: another process that has started since would not have them.
func TestManager_SharedKeepsNoReplacedCommits(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	opts := options()
	opts.Shared = true
	m := start(t, opts, rolls("team", r))
	active(t, m, "team", first)
	for _, label := range []string{"two", "three"} {
		next := commit(t, r, good(label))
		syncs(t, m, "team")
		if st := rollingOut(t, m, "team", next); len(st.Candidates["team"].Former) != 0 || len(st.Beside.Former("team")) != 0 {
			t.Errorf("%d are kept", len(st.Candidates["team"].Former))
		}
	}
}

// TestManager_FirstCommitSeenRollsOutElsewhere: the one before it, which other processes have active, is here, too.
func TestManager_FirstCommitSeenRollsOutElsewhere(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	second := commit(t, r, good("two"))
	src := rolls("team", r)
	m := start(t, options(), src)
	active(t, m, "team", second)
	src.Begun, src.LastGood = second, first
	if err := m.SetSources([]policysource.Source{src}); err != nil {
		t.Fatal(err)
	}
	st := rollingOut(t, m, "team", second)
	if got := st.Policies["team"].Commit.Hash; got != first {
		t.Errorf("%s is active", got)
	}
	src.Promoted = second
	if err := m.SetSources([]policysource.Source{src}); err != nil {
		t.Fatal(err)
	}
	active(t, m, "team", second)
}
