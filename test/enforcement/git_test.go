package enforcement

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/crypto/ssh/knownhosts"

	"federator.dev/federator/test/git"
	"federator.dev/federator/test/kube/tcpproxy"
)

// remote serves the repository over https, through a proxy.
type remote struct {
	server *git.HTTPS
	proxy  *tcpproxy.Proxy
}

func (r *remote) close() error {
	err := r.proxy.Close()
	r.server.Close()
	return err
}

// serveGit serves the repository over https, sets $REPO, and writes ca.crt. With a
// token, only clients that have it may read.
func serveGit(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
	if s.remote == nil {
		server, err := git.ServeHTTPS(filepath.Dir(s.repo.Dir))
		if err != nil {
			return err
		}
		proxy, err := tcpproxy.Listen(context.WithoutCancel(ctx), "127.0.0.1:0", strings.TrimPrefix(server.URL, "https://"))
		if err != nil {
			server.Close()
			return err
		}
		s.remote = &remote{server: server, proxy: proxy}
		ts.Setenv("REPO", "https://"+proxy.Addr()+"/policies")
		if err := os.WriteFile(ts.MkAbs("ca.crt"), server.CA, 0o600); err != nil {
			return err
		}
	}
	if len(args) > 0 {
		s.remote.server.RequireToken(args[0])
	}
	return nil
}

// serveSSH serves the repository over ssh, sets $REPO, and writes what a Secret needs: identity,
// known_hosts, and known_hosts.other, which has the key of another host at this address.
func serveSSH(_ context.Context, s *story, ts *testscript.TestScript, _ []string) error {
	identity, public, err := git.NewKey()
	if err != nil {
		return err
	}
	_, other, err := git.NewKey()
	if err != nil {
		return err
	}
	server, err := git.ServeSSH(filepath.Dir(s.repo.Dir), public)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, server.Close)
	ts.Setenv("REPO", "ssh://git@"+server.Address+"/policies")
	return errors.Join(
		os.WriteFile(ts.MkAbs("identity"), []byte(identity), 0o600),
		os.WriteFile(ts.MkAbs("known_hosts"), server.KnownHosts, 0o600),
		os.WriteFile(ts.MkAbs("known_hosts.other"), []byte(knownhosts.Line([]string{server.Address}, other)+"\n"), 0o600),
	)
}

// commit makes a commit of the files of a directory alone, and sets $COMMIT.
func commit(_ context.Context, s *story, ts *testscript.TestScript, args []string) error {
	signer := ""
	if len(args) == 3 && args[0] == "-sign" {
		signer, args = args[1], args[2:]
	}
	if len(args) > 1 {
		return errors.New("one directory")
	}
	files := map[string]string{}
	if len(args) == 1 {
		root := ts.MkAbs(args[0])
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, path)
			files[filepath.ToSlash(rel)] = string(text)
			return err
		}); err != nil {
			return err
		}
	}
	hash, err := s.repo.Commit(files)
	if err == nil && signer != "" {
		hash, err = s.sign(hash, s.signers[signer])
	}
	ts.Setenv("COMMIT", hash)
	return err
}

// makeKey creates a PGP key for commits, and writes its public half to NAME.asc.
func makeKey(_ context.Context, s *story, ts *testscript.TestScript, args []string) error {
	born := time.Now().Add(-time.Hour)
	key, err := openpgp.NewEntity(args[0], "", args[0]+"@example.com", &packet.Config{Time: func() time.Time { return born }, Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(key.Serialize(w), w.Close()); err != nil {
		return err
	}
	if s.signers == nil {
		s.signers = map[string]*openpgp.Entity{}
	}
	s.signers[args[0]] = key
	return os.WriteFile(ts.MkAbs(args[0]+".asc"), out.Bytes(), 0o600)
}

// sign replaces the newest commit by a signed one, like git commit -S.
func (s *story) sign(hash string, key *openpgp.Entity) (string, error) {
	if key == nil {
		return "", errors.New("there is no such key")
	}
	payload, err := s.repo.Run("cat-file", "commit", hash)
	if err != nil {
		return "", err
	}
	payload += "\n"
	var sig bytes.Buffer
	made := key.PrimaryKey.CreationTime.Add(time.Second)
	if err := openpgp.ArmoredDetachSign(&sig, key, strings.NewReader(payload), &packet.Config{Time: func() time.Time { return made }}); err != nil {
		return "", err
	}
	header, message, _ := strings.Cut(payload, "\n\n")
	signed := header + "\ngpgsig " + strings.ReplaceAll(strings.TrimSpace(sig.String()), "\n", "\n ") + "\n\n" + message
	file := filepath.Join(s.dir, "signed-commit")
	if err := os.WriteFile(file, []byte(signed), 0o600); err != nil {
		return "", err
	}
	if hash, err = s.repo.Run("hash-object", "-t", "commit", "-w", file); err != nil {
		return "", err
	}
	_, err = s.repo.Run("update-ref", "refs/heads/main", hash)
	return hash, err
}

// network returns the proxy in front of a cluster, or of git.
func (s *story) network(ctx context.Context, name string) (*tcpproxy.Proxy, error) {
	if name == "git" {
		if s.remote == nil {
			return nil, fmt.Errorf("git is not served: see git")
		}
		return s.remote.proxy, nil
	}
	c, err := s.cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	return c.Proxy, nil
}

// push notifies a process of a push to the repository, like GitHub.
func push(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
	p, err := s.process(args[0])
	if err != nil {
		return err
	}
	address, err := p.Address("webhook")
	if err != nil {
		return err
	}
	secret := hookSecret
	if len(args) > 1 {
		secret = args[1]
	}
	body := fmt.Appendf(nil, `{"ref":"refs/heads/main","repository":{"clone_url":%q}}`, ts.Getenv("REPO"))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/hooks/git", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return errors.Join(fmt.Errorf("%s: %s", resp.Status, text), err)
	}
	return nil
}

// usersOf returns policies.signers of the configuration, for KEY=USER.
func (s *story) usersOf(keys []string) (string, error) {
	var out []string
	for _, k := range keys {
		name, user, _ := strings.Cut(k, "=")
		key := s.signers[name]
		if key == nil {
			return "", fmt.Errorf("there is no key %q", name)
		}
		out = append(out, fmt.Sprintf("%q: %q", fmt.Sprintf("PGP:%X", key.PrimaryKey.Fingerprint), user))
	}
	return strings.Join(out, ", "), nil
}
