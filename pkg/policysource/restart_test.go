package policysource_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/test/git"
)

// TestManager_MaxDiffHoldsWhereLastGoodIsGone: the commit that was active before a restart
// cannot be fetched any more, since it was force-pushed away.
func TestManager_MaxDiffHoldsWhereLastGoodIsGone(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	newest := commit(t, r, good("two"))
	opts := options()
	opts.Diff = func(context.Context, policysource.Candidate) (policysource.Difference, error) {
		return policysource.Difference{Appeared: 100_000}, nil
	}
	src := source("team", r)
	src.MaxDiff, src.LastGood = 10, strings.Repeat("1", 40)
	m := start(t, opts, src)
	judged := func(st *policysource.State) bool {
		p := st.Status["team"].Phase
		return p == policysource.Active || p == policysource.Diff
	}
	if s := await(t, m, "judged", judged).Status["team"]; s.Phase != policysource.Diff || s.Active != nil || s.Newest.Hash != newest {
		t.Errorf("%+v", s)
	}
	// The same commit, where it is the one that was active, is not compared with nothing.
	src.LastGood = newest
	m = start(t, opts, src)
	if s := await(t, m, "judged", judged).Status["team"]; s.Phase != policysource.Active {
		t.Errorf("%+v", s)
	}
}

// TestManager_PackagesStayTheirSourcesOverRestarts: another source takes the name of a
// package while its owner cannot be read.
func TestManager_PackagesStayTheirSourcesOverRestarts(t *testing.T) {
	root := t.TempDir()
	owner, other := newRepo(t, root, "owner"), newRepo(t, root, "other")
	a := commit(t, owner, good("one"))
	m := start(t, options(), source("owner", owner))
	owned := active(t, m, "owner", a).Policies["owner"].Packages
	if !slices.Contains(owned, "team") {
		t.Fatalf("packages %q", owned)
	}
	b := commit(t, other, map[string]string{"policies/team/team.rego": rule("team", "evil")})

	// A restart, after which the owner cannot be reached.
	own := source("owner", owner)
	own.LastGood, own.Owned = a, owned
	own.URL = "file://" + filepath.Join(root, "away")
	m = start(t, options(), source("other", other), own)
	s := await(t, m, "the other is judged", func(st *policysource.State) bool {
		p := st.Status["other"].Phase
		return p == policysource.Active || p == policysource.Compile
	}).Status["other"]
	if s.Reason != "PackageTaken" || s.Active != nil || !strings.Contains(s.Message, `"owner"`) {
		t.Errorf("%+v", s)
	}
	// The owner is removed: the name is free.
	set(t, m, source("other", other))
	if err := m.Sync("other"); err != nil {
		t.Fatal(err)
	}
	active(t, m, "other", b)
}

// TestManager_ATestWithAnErrorRejectsACommit: it does not fail, it ends with an error.
func TestManager_ATestWithAnErrorRejectsACommit(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	last := commit(t, r, good("bad"))
	m := start(t, options(), source("team", r))
	active(t, m, "team", last)
	newest := commit(t, r, plus(good("worse"), "policies/team/team_test.rego", "package team_test\n\ntest_label if not to_number(\"x\") == 1\n"))
	if err := m.Sync("team"); err != nil {
		t.Fatal(err)
	}
	s := await(t, m, "judged", func(st *policysource.State) bool {
		s := st.Status["team"]
		return s.Newest != nil && s.Newest.Hash == newest
	}).Status["team"]
	if !phase(policysource.Test, "Test")(s) || s.Current || s.Active.Hash != last {
		t.Errorf("%+v", s)
	}
	if len(s.Findings) == 0 || s.Findings[0].Code != "test-error" {
		t.Errorf("findings %+v", s.Findings)
	}
}

// TestManager_ATagOfAStrangerIsRejected: the tag is signed, by a key that is not trusted.
func TestManager_ATagOfAStrangerIsRejected(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed, and git signs with it")
	}
	r := newRepo(t, t.TempDir(), "r")
	private, _, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	_, trusted, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	commit(t, r, good("bad"))
	for _, args := range [][]string{{"config", "gpg.format", "ssh"}, {"config", "user.signingkey", file}, {"tag", "-s", "v1", "-m", "one"}} {
		if _, err := r.Run(args...); err != nil {
			t.Fatal(err)
		}
	}
	src := source("team", r)
	src.Verify.AllowedSigners = []byte("ann " + string(ssh.MarshalAuthorizedKey(trusted)))
	src.Ref = "v1"
	m := start(t, options(), src)
	s := await(t, m, "judged", func(st *policysource.State) bool { return st.Status["team"].Newest != nil }).Status["team"]
	if s.Phase != policysource.Verify || s.Active != nil {
		t.Errorf("%+v", s)
	}
}
