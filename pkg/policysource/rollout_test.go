package policysource_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/test/git"
)

// rolls returns a source whose commits roll out.
func rolls(name string, r *git.Repo) policysource.Source {
	src := source(name, r)
	src.Rollout = true
	return src
}

// rollingOut waits for a commit of a source to be a candidate.
func rollingOut(t *testing.T, m *policysource.Manager, name, commit string) *policysource.State {
	t.Helper()
	st := await(t, m, name+" rolls out "+commit, func(st *policysource.State) bool {
		wellFormed(t, st)
		s := st.Status[name]
		return phase(policysource.Rollout, policysource.ReasonInRollout)(s) && s.Newest.Hash == commit
	})
	if c, ok := st.Candidates[name]; !ok || c.Commit.Hash != commit || c.Set == nil || c.Tree == nil || c.Line.Head() != commit || st.Status[name].Line.Head() != commit {
		t.Fatalf("%v, %+v", ok, c.Commit)
	}
	return st
}

// wellFormed checks what holds of each state.
func wellFormed(t *testing.T, st *policysource.State) {
	t.Helper()
	if st.Set == nil || st.Beside == nil || len(st.Candidates) == 0 && st.Beside != st.Set {
		t.Fatalf("set %p, beside %p, %d candidates", st.Set, st.Beside, len(st.Candidates))
	}
	for _, p := range st.Set.Packages {
		if got := st.Beside.Digest(p.Name); got != st.Set.Digest(p.Name) {
			t.Fatalf("beside the candidates package %s has the digest %q", p.Name, got)
		}
	}
}

func syncs(t *testing.T, m *policysource.Manager, name string) {
	t.Helper()
	if err := m.Sync(name); err != nil {
		t.Fatal(err)
	}
}

func TestManager_CommitRollsOutBesideTheActiveOne(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	tree := plus(good("one"), "policies/same.rego", rule("same", "x"), "policies/gone.rego", rule("gone", "x"))
	first := commit(t, r, tree)
	src := rolls("team", r)
	m := start(t, options(), src)
	wellFormed(t, m.State())
	before := active(t, m, "team", first) // there is nothing to be beside
	wellFormed(t, before)

	next := plus(good("two"), "policies/same.rego", rule("same", "x"), "policies/new.rego", rule("new", "x"))
	second := commit(t, r, next)
	syncs(t, m, "team")
	st := rollingOut(t, m, "team", second)
	s, p, c := st.Status["team"], st.Policies["team"], st.Candidates["team"]
	if st.Set != before.Set || st.Generation != before.Generation || p.Commit.Hash != first || !p.Current || !s.Current || s.Active.Hash != first {
		t.Errorf("%+v", s)
	}
	if want := []string{"gone", "new", "team"}; !slices.Equal(c.Packages, want) {
		t.Errorf("packages %q, want %q", c.Packages, want)
	}
	if c.Set.Digest("team") == st.Set.Digest("team") || c.Set.Package("gone") != nil || c.Commit.Path != "policies" {
		t.Errorf("%+v", c.Commit)
	}
	if !strings.Contains(s.Message, first) || !strings.Contains(s.Message, second) || len(s.Findings) == 0 {
		t.Errorf("%+v", s)
	}

	// Another commit's hash, and its own.
	src.Promoted = first
	set(t, m, src)
	src.Promoted = second
	set(t, m, src)
	st = active(t, m, "team", second) // without a look at the remote
	wellFormed(t, st)
	if s := st.Status["team"]; st.Set != c.Set || st.Generation != before.Generation+1 || len(st.Candidates) != 0 || s.Fetches != 2 {
		t.Errorf("generation %d, %d candidates, %+v", st.Generation, len(st.Candidates), s)
	}

	// What changes no package has nothing to roll out.
	third := commit(t, r, plus(next, "policies/fleetpolicy.yaml", "kind: FleetPolicy\n"))
	syncs(t, m, "team")
	if st = active(t, m, "team", third); len(st.Candidates) != 0 {
		t.Error("there is a candidate")
	}
}

func TestManager_NewerCommitReplacesTheCandidate(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	src := rolls("team", r)
	m := start(t, options(), src)
	before := active(t, m, "team", first)
	var replaced []string // the newest first
	for _, label := range []string{"two", "three", "four", "five"} {
		next := commit(t, r, good(label))
		syncs(t, m, "team")
		st := rollingOut(t, m, "team", next)
		if st.Set != before.Set || !st.Policies["team"].Current {
			t.Errorf("%+v", st.Status["team"])
		}
		// Policies may have come to the end with those that it replaces: they are kept, two at most.
		var kept []string
		for _, former := range st.Candidates["team"].Former {
			kept = append(kept, former.Commit.Hash)
			if !slices.Contains(st.Beside.Former("team"), "team@"+former.Set.Version("team")) {
				t.Errorf("%s is not beside the others: %q", former.Commit.Hash, st.Beside.Former("team"))
			}
		}
		if !slices.Equal(kept, replaced[:min(2, len(replaced))]) || len(st.Beside.Former("team")) != len(kept) {
			t.Errorf("%q are kept of %q", kept, replaced)
		}
		replaced = append([]string{next}, replaced...)
	}
	// A bad one takes its place, too, and nothing is enforced: the newest commit is not good.
	commit(t, r, plus(good("four"), "policies/team/team_test.rego", test("team", "other")))
	syncs(t, m, "team")
	st := await(t, m, "rejected", func(st *policysource.State) bool { return st.Status["team"].Phase == policysource.Test })
	wellFormed(t, st)
	if len(st.Candidates) != 0 || st.Policies["team"].Current || st.Policies["team"].Commit.Hash != first {
		t.Errorf("%d candidates, %+v", len(st.Candidates), st.Status["team"])
	}
	// The next good one has the former enforced again.
	fifth := commit(t, r, good("five"))
	syncs(t, m, "team")
	if st = rollingOut(t, m, "team", fifth); !st.Policies["team"].Current {
		t.Errorf("%+v", st.Status["team"])
	}
	// So does the former itself, and nothing rolls out.
	if _, err := r.Run("reset", "--quiet", "--hard", first); err != nil {
		t.Fatal(err)
	}
	syncs(t, m, "team")
	st = active(t, m, "team", first)
	wellFormed(t, st)
	if len(st.Candidates) != 0 || st.Set != before.Set {
		t.Errorf("%d candidates", len(st.Candidates))
	}
	// An emptied repository, which is not even fetched.
	commit(t, r, good("six"))
	syncs(t, m, "team")
	await(t, m, "rolls out", func(st *policysource.State) bool { return len(st.Candidates) == 1 })
	commit(t, r, map[string]string{"README.md": "about"})
	syncs(t, m, "team")
	st = await(t, m, "rejected", func(st *policysource.State) bool { return st.Status["team"].Reason == "Emptied" })
	wellFormed(t, st)
	if len(st.Candidates) != 0 || st.Policies["team"].Current {
		t.Errorf("%d candidates, %+v", len(st.Candidates), st.Status["team"])
	}
}

func TestManager_CommitThatIsTakenBackStaysBack(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	src := rolls("team", r)
	m := start(t, options(), src)
	before := active(t, m, "team", first)
	second := commit(t, r, good("two"))
	syncs(t, m, "team")
	rollingOut(t, m, "team", second)
	back := func(m *policysource.Manager) {
		t.Helper()
		st := await(t, m, "taken back", func(st *policysource.State) bool { return st.Status["team"].Reason == policysource.ReasonTakenBack })
		wellFormed(t, st)
		s := st.Status["team"]
		if s.Phase != policysource.Rollout || s.Newest.Hash != second || s.Active.Hash != first || s.Current || len(st.Candidates) != 0 || !strings.Contains(s.Message, "it finds too much") {
			t.Errorf("%d candidates, %+v", len(st.Candidates), s)
		}
	}
	src.TakenBack, src.TakenBackMessage = second, "it finds too much"
	set(t, m, src)
	back(m)
	if m.State().Set != before.Set {
		t.Error("the active set was replaced")
	}
	// Checked again, it still is; and after a restart.
	was := m.State().Status["team"].Contact
	after(t, m, "team", func(s policysource.Status) bool { return s.Contact.After(was) })
	back(m)
	src.LastGood = first
	m = start(t, options(), src)
	back(m)
	// Another one is another matter.
	third := commit(t, r, good("three"))
	syncs(t, m, "team")
	if st := rollingOut(t, m, "team", third); !st.Policies["team"].Current {
		t.Errorf("%+v", st.Status["team"])
	}
	// Where nothing is to roll out any more, it is active.
	src.Rollout = false
	set(t, m, src)
	active(t, m, "team", third)
}

// TestManager_TakenBackIsNotActiveWhereTheLastGoodIsGone: it would be the only one.
func TestManager_TakenBackIsNotActiveWhereTheLastGoodIsGone(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	src := rolls("team", r)
	src.TakenBack, src.LastGood = commit(t, r, good("one")), strings.Repeat("1", 40)
	m := start(t, options(), src)
	st := await(t, m, "judged", func(st *policysource.State) bool { return st.Status["team"].Newest != nil })
	if s := st.Status["team"]; s.Reason != policysource.ReasonTakenBack || s.Active != nil {
		t.Errorf("%+v", s)
	}
}

func TestManager_CandidateIsOneAgainAfterARestart(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	second := commit(t, r, good("two"))
	src := rolls("team", r)
	src.LastGood = first
	m := start(t, options(), src)
	st := rollingOut(t, m, "team", second)
	if p := st.Policies["team"]; p.Commit.Hash != first || !p.Current {
		t.Errorf("%+v", st.Status["team"])
	}
	// Promoted meanwhile.
	src.Promoted = second
	m = start(t, options(), src)
	active(t, m, "team", second)
}

// TestManager_CandidateFollowsOtherSources: its set has what is active of others.
func TestManager_CandidateFollowsOtherSources(t *testing.T) {
	root := t.TempDir()
	ours, theirs, stuck := newRepo(t, root, "ours"), newRepo(t, root, "theirs"), newRepo(t, root, "stuck")
	first := commit(t, ours, good("one"))
	one := commit(t, theirs, map[string]string{"policies/other.rego": rule("other", "one")})
	commit(t, stuck, map[string]string{"policies/stuck.rego": rule("stuck", "x") + "\ny := nosuch(1)\n"})
	src, other, bad := rolls("ours", ours), source("theirs", theirs), source("stuck", stuck)
	m := start(t, options(), src, other, bad)
	active(t, m, "ours", first)
	active(t, m, "theirs", one)
	await(t, m, "stuck", func(st *policysource.State) bool { return st.Status["stuck"].Phase == policysource.Compile })

	second := commit(t, ours, good("two"))
	was := m.State().Status["stuck"].Contact
	syncs(t, m, "ours")
	st := rollingOut(t, m, "ours", second)
	two := commit(t, theirs, map[string]string{"policies/other.rego": rule("other", "two")})
	if st.Status["stuck"].Contact != was {
		t.Error("others were checked again for a candidate")
	}
	syncs(t, m, "theirs")
	active(t, m, "theirs", two)
	st = await(t, m, "the candidate has the other commit", func(st *policysource.State) bool {
		wellFormed(t, st)
		c, ok := st.Candidates["ours"]
		if !ok {
			t.Fatalf("%+v", st.Status["ours"])
		}
		return c.Set.Digest("other") == st.Set.Digest("other")
	})
	if c := st.Candidates["ours"]; c.Commit.Hash != second || !slices.Equal(c.Packages, []string{"team"}) || !st.Policies["ours"].Current {
		t.Errorf("%q, %+v", c.Packages, st.Status["ours"])
	}
	src.Promoted = second
	set(t, m, src, other, bad)
	if st = active(t, m, "ours", second); names(st) != "other team" || st.Policies["theirs"].Commit.Hash != two {
		t.Errorf("%q", names(st))
	}
}

// TestManager_CandidateEndsWithItsSource: it is removed, is invalid, or is another repository's.
func TestManager_CandidateEndsWithItsSource(t *testing.T) {
	root := t.TempDir()
	for name, change := range map[string]func(*policysource.Source) bool{
		"removed": func(*policysource.Source) bool { return false },
		"invalid": func(s *policysource.Source) bool { s.Problem = "no Secret"; return true },
		"moved":   func(s *policysource.Source) bool { s.URL = "file://" + filepath.Join(root, "away"); return true },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepo(t, root, name)
			first := commit(t, r, good("one"))
			src := rolls("team", r)
			m := start(t, options(), src)
			active(t, m, "team", first)
			second := commit(t, r, good("two"))
			syncs(t, m, "team")
			rollingOut(t, m, "team", second)
			// Another field of its has it checked again, and the candidate stays meanwhile.
			src.Generation++
			set(t, m, src)
			await(t, m, "checked", func(st *policysource.State) bool {
				if len(st.Candidates) != 1 || !st.Policies["team"].Current {
					t.Fatalf("%d candidates, %+v", len(st.Candidates), st.Status["team"])
				}
				return st.Status["team"].Generation == 1 && st.Status["team"].Phase == policysource.Rollout
			})
			if change(&src) {
				set(t, m, src)
			} else {
				set(t, m)
			}
			st := await(t, m, "no candidate", func(st *policysource.State) bool { wellFormed(t, st); return len(st.Candidates) == 0 })
			if st.Policies["team"].Current {
				t.Errorf("%+v", st.Status["team"])
			}
		})
	}
}

// TestManager_FormerOfAnotherRepositoryIsNotEnforced: nobody vouches for it any more.
func TestManager_FormerOfAnotherRepositoryIsNotEnforced(t *testing.T) {
	root := t.TempDir()
	was, now := newRepo(t, root, "was"), newRepo(t, root, "now")
	first := commit(t, was, good("one"))
	m := start(t, options(), rolls("team", was))
	active(t, m, "team", first)
	next := commit(t, now, good("two"))
	set(t, m, rolls("team", now))
	if st := rollingOut(t, m, "team", next); st.Policies["team"].Current {
		t.Errorf("%+v", st.Status["team"])
	}
}

// TestManager_CandidatesShareNoPackage: the second one would take it from the first.
func TestManager_CandidatesShareNoPackage(t *testing.T) {
	root := t.TempDir()
	a, b := newRepo(t, root, "a"), newRepo(t, root, "b")
	firsts := map[string]string{"a": commit(t, a, map[string]string{"policies/a.rego": rule("a", "x")}), "b": commit(t, b, map[string]string{"policies/b.rego": rule("b", "x")})}
	m := start(t, options(), rolls("a", a), rolls("b", b))
	active(t, m, "a", firsts["a"])
	active(t, m, "b", firsts["b"])
	hash := commit(t, a, map[string]string{"policies/a.rego": rule("a", "x"), "policies/c.rego": rule("c", "x")})
	syncs(t, m, "a")
	rollingOut(t, m, "a", hash)
	commit(t, b, map[string]string{"policies/b.rego": rule("b", "x"), "policies/c.rego": rule("c", "x")})
	syncs(t, m, "b")
	st := await(t, m, "taken", func(st *policysource.State) bool { return st.Status["b"].Reason == "PackageTaken" })
	if s := st.Status["b"]; s.Current || !strings.Contains(s.Message, `package c is that of a commit of source "a"`) || len(st.Candidates) != 1 {
		t.Errorf("%+v", s)
	}
	// The first gives it up.
	hash = commit(t, a, map[string]string{"policies/a.rego": rule("a", "y")})
	syncs(t, m, "a")
	rollingOut(t, m, "a", hash)
	syncs(t, m, "b")
	await(t, m, "both", func(st *policysource.State) bool {
		wellFormed(t, st)
		return len(st.Candidates) == 2 && st.Policies["b"].Current
	})
}

// TestManager_BoundIsAskedBeforeARollout: and not again while it lasts.
func TestManager_BoundIsAskedBeforeARollout(t *testing.T) {
	root := t.TempDir()
	r, other := newRepo(t, root, "r"), newRepo(t, root, "other")
	first := commit(t, r, good("one"))
	one := commit(t, other, map[string]string{"policies/other.rego": rule("other", "one")})
	var wide atomic.Int64
	opts := options()
	opts.Diff = func(context.Context, policysource.Candidate) (policysource.Difference, error) {
		return policysource.Difference{Appeared: int(wide.Load())}, nil
	}
	src := rolls("team", r)
	src.MaxDiff = 10
	m := start(t, opts, src, source("other", other))
	active(t, m, "team", first)
	active(t, m, "other", one)
	wide.Store(11)
	second := commit(t, r, good("two"))
	syncs(t, m, "team")
	st := await(t, m, "too wide", func(st *policysource.State) bool { return st.Status["team"].Reason == policysource.ReasonTooWide })
	if len(st.Candidates) != 0 || st.Policies["team"].Current {
		t.Errorf("%+v", st.Status["team"])
	}
	wide.Store(10)
	syncs(t, m, "team")
	rollingOut(t, m, "team", second)
	src.Begun = second
	set(t, m, src, source("other", other))
	wide.Store(11)
	two := commit(t, other, map[string]string{"policies/other.rego": rule("other", "two")})
	syncs(t, m, "other")
	active(t, m, "other", two)
	st = await(t, m, "judged again", func(st *policysource.State) bool {
		c, ok := st.Candidates["team"]
		if !ok {
			t.Fatalf("%+v", st.Status["team"])
		}
		return c.Set.Digest("other") == st.Set.Digest("other")
	})
	if d := st.Status["team"].Diff; d == nil || d.Total() != 11 {
		t.Errorf("%+v", d)
	}
}

// settled waits until the newest commit of a source is active, or rolls out, or was refused.
func settled(t *testing.T, m *policysource.Manager, commit string) policysource.Status {
	t.Helper()
	return await(t, m, "judged", func(st *policysource.State) bool {
		s := st.Status["team"]
		return s.Newest != nil && s.Newest.Hash == commit && s.Phase != policysource.Pending
	}).Status["team"]
}

// TestManager_ShadowIsNotSkippedWhereTheLastGoodIsGone: a commit is in shadow (status.rollout of the
// PolicySource says so), the process restarts, and the former commit cannot be fetched any more: its
// history was rewritten, or the server does not serve commits by hash.
func TestManager_ShadowIsNotSkippedWhereTheLastGoodIsGone(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	newest := commit(t, r, good("two"))
	src := rolls("team", r)
	src.LastGood, src.Begun = strings.Repeat("1", 40), newest // as toSource has it of {activeCommit: 1…, rollout: {commit: newest, phase: Shadow}}
	m := start(t, options(), src)
	if s := settled(t, m, newest); s.Active != nil && s.Current {
		t.Errorf("a commit in shadow is active, current, and enforced: phase %s, active %s", s.Phase, s.Active.Hash)
	}
}

// oneActive is a source that rolls commits out, and whose first one is active.
func oneActive(t *testing.T) (repo *git.Repo, src policysource.Source, m *policysource.Manager) {
	t.Helper()
	repo = newRepo(t, t.TempDir(), "r")
	first := commit(t, repo, good("one"))
	src = rolls("team", repo)
	m = start(t, options(), src)
	active(t, m, "team", first)
	return repo, src, m
}

// TestManager_FollowerThatFetchesLateFollows: the leader has promoted a commit, and its status.rollout is gone again; a follower
// (its interval is minutes) fetches the commit only now. It is told {activeCommit: second, rollout: nil}.
func TestManager_FollowerThatFetchesLateFollows(t *testing.T) {
	r, src, m := oneActive(t)
	second := commit(t, r, good("two"))
	src.LastGood = second // toSource: status.activeCommit, as the leader has written it
	set(t, m, src)
	syncs(t, m, "team")
	active(t, m, "team", second) // also if it was fetched just before, and was to roll out
}

// TestManager_FollowerThatHasFetchedFollows: as above, but the commit rolls out here when the follower is told.
func TestManager_FollowerThatHasFetchedFollows(t *testing.T) {
	r, src, m := oneActive(t)
	second := commit(t, r, good("two"))
	syncs(t, m, "team")
	rollingOut(t, m, "team", second)
	src.LastGood = second
	set(t, m, src)
	active(t, m, "team", second)
}

// TestManager_TakenBackStaysSo: only the FleetPolicy that was taken back had asked for a rollout. It is deleted.
func TestManager_TakenBackStaysSo(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	src := rolls("team", r) // sourcerollout.Asks: one FleetPolicy has spec.rollout
	m := start(t, options(), src)
	active(t, m, "team", first)
	second := commit(t, r, good("two"))
	syncs(t, m, "team")
	rollingOut(t, m, "team", second)
	src.TakenBack, src.TakenBackMessage = second, "it finds too much"
	set(t, m, src)
	await(t, m, "taken back", func(st *policysource.State) bool { return st.Status["team"].Reason == policysource.ReasonTakenBack })
	src.Rollout = false // that FleetPolicy is deleted, or its spec.package changes: nobody has touched the commit
	set(t, m, src)
	syncs(t, m, "team")
	third := commit(t, r, good("three"))
	syncs(t, m, "team")
	active(t, m, "team", third) // a better one is no business of that
	second = commit(t, r, good("two"))
	src.TakenBack = second
	set(t, m, src)
	syncs(t, m, "team")
	st := await(t, m, "taken back at once", func(st *policysource.State) bool { return st.Status["team"].Reason == policysource.ReasonTakenBack })
	if s := st.Status["team"]; s.Active.Hash != third || s.Current {
		t.Errorf("%+v", s)
	}
}
