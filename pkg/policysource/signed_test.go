package policysource_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"

	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/test/git"
)

// entity returns a PGP key, and its public half in armor.
func entity(t *testing.T, name string, made time.Time, seconds uint32) (*openpgp.Entity, []byte) {
	t.Helper()
	e, err := openpgp.NewEntity(name, "", strings.ToLower(name)+"@example.com", &packet.Config{Time: func() time.Time { return made }, KeyLifetimeSecs: seconds})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Serialize(w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return e, out.Bytes()
}

// commitAs commits a tree with a signature, as git commit -S does.
func commitAs(t *testing.T, r *git.Repo, tree map[string]string, key *openpgp.Entity) string {
	t.Helper()
	hash := commit(t, r, tree)
	if key == nil {
		return hash
	}
	run := func(args ...string) string {
		out, err := r.Run(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	payload := run("cat-file", "commit", hash) + "\n"
	var sig bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&sig, key, strings.NewReader(payload), &packet.Config{Time: func() time.Time { return key.PrimaryKey.CreationTime.Add(time.Second) }}); err != nil {
		t.Fatal(err)
	}
	header, message, _ := strings.Cut(payload, "\n\n")
	signed := header + "\ngpgsig " + strings.ReplaceAll(strings.TrimSpace(sig.String()), "\n", "\n ") + "\n\n" + message
	file := filepath.Join(t.TempDir(), "commit")
	if err := os.WriteFile(file, []byte(signed), 0o600); err != nil {
		t.Fatal(err)
	}
	hash = run("hash-object", "-t", "commit", "-w", file)
	run("update-ref", "refs/heads/main", hash)
	return hash
}

func TestManager_OnlyTrustedCommitsAreActive(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	born := time.Now().Add(-time.Hour)
	ann, annKey := entity(t, "Ann", born, 0)
	eve, _ := entity(t, "Eve", born, 0)
	old, oldKey := entity(t, "Old", time.Now().Add(-48*time.Hour), 24*3600)
	src := source("team", r)
	src.Verify = policysource.Keys{PGP: append(annKey, oldKey...)}
	commitAs(t, r, good("zero"), nil)
	m := start(t, options(), src)
	await(t, m, "unsigned", func(st *policysource.State) bool {
		s := st.Status["team"]
		return phase(policysource.Verify, "Unsigned")(s) && s.Active == nil && len(st.Policies) == 0
	})
	last := commitAs(t, r, good("one"), ann)
	if err := m.Sync("team"); err != nil {
		t.Fatal(err)
	}
	st := active(t, m, "team", last)
	if who := st.Status["team"].Active.Signer; !strings.HasPrefix(who, "Ann <ann@example.com> PGP:") {
		t.Errorf("signer %q", who)
	}
	for _, c := range []struct {
		key    *openpgp.Entity
		reason string
	}{{nil, "Unsigned"}, {eve, "Untrusted"}, {old, "Expired"}} {
		hash := commitAs(t, r, good("two"), c.key)
		s := after(t, m, "team", phase(policysource.Verify, c.reason)).Status["team"]
		if s.Active.Hash != last || s.Current || s.Newest.Hash != hash || s.Newest.Signer != "" || !strings.Contains(s.Message, hash) {
			t.Errorf("%s: %+v", c.reason, s)
		}
	}
	// A key that is trusted later serves for the commit that is there.
	src.Verify.PGP = nil
	set(t, m, src)
	if s := await(t, m, "without keys", func(st *policysource.State) bool {
		return st.Status["team"].Current
	}).Status["team"]; s.Active.Signer != "" {
		t.Errorf("%+v", s)
	}
}

// TestManager_KnowsWhoMadeEachCommit: also those that were rejected, or not trusted. Of what was
// fetched together with others that is not known.
func TestManager_KnowsWhoMadeEachCommit(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	born := time.Now().Add(-time.Hour)
	ann, annKey := entity(t, "Ann", born, 0)
	bob, bobKey := entity(t, "Bob", born, 0)
	eve, _ := entity(t, "Eve", born, 0)
	src := source("team", r)
	src.Verify = policysource.Keys{PGP: append(annKey, bobKey...)}
	first := commitAs(t, r, good("one"), ann)
	m := start(t, options(), src)
	made := func(st *policysource.State, since string) (out string) {
		commits, all := st.Policies["team"].Line.Since(since)
		for _, c := range commits {
			name, _, _ := strings.Cut(c.Signer, " ")
			out += name + ","
		}
		return fmt.Sprint(out, all)
	}
	if got := made(active(t, m, "team", first), ""); got != "Ann,true" {
		t.Errorf("the first: %s", got)
	}
	commitAs(t, r, map[string]string{"policies/team/team.rego": "package"}, bob)
	after(t, m, "team", phase(policysource.Compile, "Compile"))
	commitAs(t, r, good("two"), eve)
	after(t, m, "team", phase(policysource.Verify, "Untrusted"))
	last := commitAs(t, r, good("three"), ann)
	if err := m.Sync("team"); err != nil {
		t.Fatal(err)
	}
	st := active(t, m, "team", last)
	if got := made(st, first); got != "Bob,,Ann,true" || len(st.Status["team"].Line) != 4 {
		t.Errorf("seen one by one: %s", got)
	}
	commitAs(t, r, good("four"), bob)
	last = commitAs(t, r, good("five"), ann)
	if err := m.Sync("team"); err != nil {
		t.Fatal(err)
	}
	if got := made(active(t, m, "team", last), first); got != "Ann,false" {
		t.Errorf("fetched together: %s", got)
	}
}

func TestManager_SignedTagVerifiesItsCommit(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed, and git signs with it")
	}
	r := newRepo(t, t.TempDir(), "r")
	private, public, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	hash := commit(t, r, good("bad"))
	for _, args := range [][]string{{"config", "gpg.format", "ssh"}, {"config", "user.signingkey", file}, {"tag", "-s", "v1", "-m", "one"}, {"tag", "-a", "v2", "-m", "two"}} {
		if _, err := r.Run(args...); err != nil {
			t.Fatal(err)
		}
	}
	src := source("team", r)
	src.Verify.AllowedSigners = []byte("ann " + string(ssh.MarshalAuthorizedKey(public)))
	src.Ref = "v1"
	m := start(t, options(), src)
	p := active(t, m, "team", hash).Policies["team"]
	if len(p.Line) != 1 || p.Line[0].Signer != "" {
		t.Errorf("who has signed the tag has made the commit: %+v", p.Line)
	}
	if c := p.Commit; c.Ref != "refs/tags/v1" || !strings.HasPrefix(c.Signer, "ann SHA256:") {
		t.Errorf("%+v", c)
	}
	src.Ref = "v2"
	set(t, m, src)
	await(t, m, "an unsigned tag", func(st *policysource.State) bool {
		return phase(policysource.Verify, "Unsigned")(st.Status["team"]) && !st.Status["team"].Current
	})
	// A signed tag under another name is another tag.
	if _, err := r.Run("update-ref", "refs/tags/v3", "refs/tags/v1"); err != nil {
		t.Fatal(err)
	}
	src.Ref = "v3"
	set(t, m, src)
	await(t, m, "a tag of another name", func(st *policysource.State) bool {
		s := st.Status["team"]
		return phase(policysource.Content, "Refused")(s) && strings.Contains(s.Message, `has the name "v1"`)
	})
}
