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

// TestManager_PromotedCommitStaysActive, though what the caller reads of it is older for a moment.
func TestManager_PromotedCommitStaysActive(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	src := rolls("team", r)
	m := start(t, options(), src)
	active(t, m, "team", first)
	second := commit(t, r, good("two"))
	src.LastGood = first
	src.Begun = second
	if err := m.SetSources([]policysource.Source{src}); err != nil {
		t.Fatal(err)
	}
	if err := m.Sync("team"); err != nil {
		t.Fatal(err)
	}
	rollingOut(t, m, "team", second)
	src.Promoted = second
	if err := m.SetSources([]policysource.Source{src}); err != nil {
		t.Fatal(err)
	}
	active(t, m, "team", second)
	src.Promoted = ""
	if err := m.SetSources([]policysource.Source{src}); err != nil {
		t.Fatal(err)
	}
	var st *policysource.State
	for range 20 { // what is set takes effect beside this
		before := m.State().Status["team"].Contact
		st = after(t, m, "team", func(s policysource.Status) bool { return s.Contact.After(before) })
	}
	if got := st.Policies["team"].Commit.Hash; got != second {
		t.Errorf("%s is active", got)
	}
}
