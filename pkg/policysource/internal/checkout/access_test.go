package checkout_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"federator.dev/federator/pkg/policysource/internal/checkout"
	"federator.dev/federator/test/git"
)

const secret = "s3cr3t/+ value"

// holds reports whether a text contains a secret in any form.
func holds(text string) bool {
	for _, s := range []string{secret, "s3cr3t", base64.StdEncoding.EncodeToString([]byte("ann:" + secret)), "PRIVATE KEY"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

func TestFetch_CredentialsUntilRevoked(t *testing.T) {
	root := t.TempDir()
	want := commit(t, repo(t, root, "r"), policies)
	web := must[*git.HTTPS](t)(git.ServeHTTPS(root))
	defer web.Close()
	for name, auth := range map[string]checkout.Auth{
		"token": {CA: web.CA, Token: secret},
		"basic": {CA: web.CA, Username: "ann", Password: secret},
	} {
		require := func(s string) {
			if auth.Token != "" {
				web.RequireToken(s)
			} else {
				web.RequireBasic("ann", s)
			}
		}
		require(secret)
		req := checkout.Request{URL: web.URL + "/r", Path: "policies", Auth: auth}
		got, err := new(checkout.Client).Fetch(t.Context(), req)
		if err != nil || got.Commit != want {
			t.Fatalf("%s: %v", name, err)
		}
		require("another")
		_, err = new(checkout.Client).Fetch(t.Context(), req)
		if !errors.Is(err, checkout.ErrDenied) || !strings.Contains(err.Error(), "401") {
			t.Errorf("%s, revoked: %v", name, err)
		}
		req.Auth = checkout.Auth{CA: web.CA}
		if _, err = new(checkout.Client).Fetch(t.Context(), req); !errors.Is(err, checkout.ErrDenied) {
			t.Errorf("%s, none: %v", name, err)
		}
	}
}

func TestFetch_KnownCommitIsNotFetched(t *testing.T) {
	root := t.TempDir()
	hash := commit(t, repo(t, root, "r"), policies)
	web := must[*git.HTTPS](t)(git.ServeHTTPS(root))
	defer web.Close()
	req := checkout.Request{URL: web.URL + "/r", Auth: checkout.Auth{CA: web.CA}, Known: hash}
	got, err := new(checkout.Client).Fetch(t.Context(), req)
	if err != nil || !got.Unchanged || got.Remote != hash {
		t.Errorf("%+v, %v", got, err)
	}
	if r := web.Requests(); len(r) != 1 || r[0] != "GET /r/info/refs" {
		t.Errorf("%v", r)
	}
}

func TestFetch_SecretsAreInNoErrorAndNoLog(t *testing.T) {
	root := t.TempDir()
	commit(t, repo(t, root, "r"), policies)
	web := must[*git.HTTPS](t)(git.ServeHTTPS(root))
	defer web.Close()
	private, public, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	shell, err := git.ServeSSH(root, public)
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Close()
	other, _, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}

	say := func(f func(http.ResponseWriter, *http.Request)) func() {
		return func() {
			web.Intercept(func(w http.ResponseWriter, r *http.Request) bool { f(w, r); return true })
		}
	}
	echo := func(w http.ResponseWriter, r *http.Request) string {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		user, password, _ := r.BasicAuth()
		return user + password + r.Header.Get("Authorization")
	}
	token := checkout.Auth{CA: web.CA, Token: secret}
	basic := checkout.Auth{CA: web.CA, Username: "ann", Password: secret}
	key := checkout.Auth{Key: checkout.Secret(private), KnownHosts: shell.KnownHosts}
	errs := map[string]error{}
	for name, c := range map[string]struct {
		before func()
		req    checkout.Request
	}{
		"denied":        {func() { web.RequireToken("other") }, checkout.Request{URL: web.URL + "/r", Auth: token}},
		"denied, basic": {func() { web.RequireBasic("ann", "other") }, checkout.Request{URL: web.URL + "/r", Auth: basic}},
		"no host":       {nil, checkout.Request{URL: "https://127.0.0.1:1/r", Auth: token}},
		"no trust":      {nil, checkout.Request{URL: web.URL + "/r", Auth: checkout.Auth{Token: secret}}},
		"in the URL":    {nil, checkout.Request{URL: "https://ann:s3cr3t@example.com/r"}},
		"odd URL":       {nil, checkout.Request{URL: "https://ann:s3cr3t@exa%zzmple.com/r"}},
		"redirect": {say(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+"s3cr3t"+":x@"+r.Host+r.URL.Path, http.StatusFound)
		}), checkout.Request{URL: web.URL + "/r", Auth: token}},
		"redirect elsewhere": {say(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com/"+secret, http.StatusFound)
		}), checkout.Request{URL: web.URL + "/r", Auth: token}},
		"echo": {say(func(w http.ResponseWriter, r *http.Request) {
			text := "ERR " + echo(w, r)
			fmt.Fprintf(w, "%04x%s", len(text)+4, text)
		}), checkout.Request{URL: web.URL + "/r", Auth: basic}},
		"echo of a token": {say(func(w http.ResponseWriter, r *http.Request) {
			text := strings.Repeat("0", 40) + " " + echo(w, r)
			fmt.Fprintf(w, "%04x%s", len(text)+4, text)
		}), checkout.Request{URL: web.URL + "/r", Auth: token}},
		"echo of a type": {say(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", r.Header.Get("Authorization"))
		}), checkout.Request{URL: web.URL + "/r", Auth: basic}},
		"wrong key":        {nil, checkout.Request{URL: "ssh://" + shell.Address + "/r", Auth: checkout.Auth{Key: checkout.Secret(other), KnownHosts: shell.KnownHosts}}},
		"no such path":     {nil, checkout.Request{URL: "ssh://" + shell.Address + "/none", Auth: key}},
		"unreadable key":   {nil, checkout.Request{URL: "ssh://" + shell.Address + "/r", Auth: checkout.Auth{Key: secret, KnownHosts: shell.KnownHosts}}},
		"unneeded phrase":  {nil, checkout.Request{URL: "ssh://" + shell.Address + "/r", Auth: checkout.Auth{Key: checkout.Secret(private), Passphrase: secret, KnownHosts: []byte("x")}}},
		"key for https":    {nil, checkout.Request{URL: web.URL + "/r", Auth: key}},
		"token for ssh":    {nil, checkout.Request{URL: "ssh://" + shell.Address + "/r", Auth: token}},
		"token and basic":  {nil, checkout.Request{URL: web.URL + "/r", Auth: checkout.Auth{Token: secret, Username: "ann", Password: secret}}},
		"password, nobody": {nil, checkout.Request{URL: web.URL + "/r", Auth: checkout.Auth{Password: secret}}},
	} {
		web.Intercept(nil)
		if c.before != nil {
			c.before()
		}
		_, err := new(checkout.Client).Fetch(t.Context(), c.req)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		errs[name] = err
		var logged bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&logged, nil))
		log.Error("failed", "err", err, "auth", c.req.Auth, "request", c.req)
		slog.New(slog.NewTextHandler(&logged, nil)).Error("failed", "err", err, "auth", c.req.Auth, "request", c.req, "password", c.req.Auth.Password)
		encoded, jsonErr := json.Marshal(c.req.Auth)
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		req := c.req
		if strings.Contains(req.URL, "s3cr3t") {
			req.URL = "" // validated, and refused, before anybody shows it
			logged.Reset()
		}
		texts := []string{logged.String(), string(encoded), fmt.Sprintf("%v %+v %#v %s %x", req, req, req, req.Auth.Password, req.Auth.Token)}
		for e := err; e != nil; {
			texts = append(texts, e.Error(), fmt.Sprintf("%+v %#v", e, e))
			joined, ok := e.(interface{ Unwrap() []error }) //nolint:errorlint // the chain itself is walked
			if !ok || len(joined.Unwrap()) == 0 {
				break
			}
			e = joined.Unwrap()[0]
		}
		for _, text := range texts {
			if holds(text) {
				t.Errorf("%s: a secret is in %q", name, text)
			}
		}
	}
	for name, want := range map[string]error{
		"denied": checkout.ErrDenied, "no host": checkout.ErrUnreachable, "no trust": checkout.ErrUnreachable, "in the URL": checkout.ErrRequest,
		"redirect": checkout.ErrRedirect, "redirect elsewhere": checkout.ErrRedirect, "echo": checkout.ErrNotFound, "echo of a type": checkout.ErrProtocol,
		"wrong key": checkout.ErrDenied, "no such path": checkout.ErrNotFound, "unreadable key": checkout.ErrRequest, "key for https": checkout.ErrRequest,
		"token for ssh": checkout.ErrRequest, "token and basic": checkout.ErrRequest, "password, nobody": checkout.ErrRequest,
	} {
		if !errors.Is(errs[name], want) {
			t.Errorf("%s: %v, want %v", name, errs[name], want)
		}
	}
	if !strings.Contains(errs["echo"].Error(), "[redacted]") {
		t.Errorf("the echo was not seen: %v", errs["echo"])
	}
}

func TestFetch_RedirectsStayOnTheHost(t *testing.T) {
	root := t.TempDir()
	want := commit(t, repo(t, root, "r"), policies)
	web := must[*git.HTTPS](t)(git.ServeHTTPS(root))
	defer web.Close()
	seen := make(chan string, 10)
	elsewhere := must[*git.HTTPS](t)(git.ServeHTTPS(root))
	defer elsewhere.Close()
	elsewhere.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		seen <- r.URL.Path + r.Header.Get("Authorization")
		return false
	})
	web.RequireToken(secret)
	req := checkout.Request{URL: web.URL + "/moved", Path: "policies", Auth: checkout.Auth{CA: append(web.CA, elsewhere.CA...), Token: secret}}
	lead := func(to func(r *http.Request) string) {
		web.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/moved") {
				return false
			}
			http.Redirect(w, r, to(r), http.StatusMovedPermanently)
			return true
		})
	}
	lead(func(r *http.Request) string { return strings.Replace(r.URL.RequestURI(), "/moved", "/r", 1) })
	got, err := new(checkout.Client).Fetch(t.Context(), req)
	if err != nil || got.Commit != want {
		t.Fatalf("on the host: %v", err)
	}
	for name, to := range map[string]func(*http.Request) string{
		"another port": func(r *http.Request) string {
			return elsewhere.URL + strings.Replace(r.URL.RequestURI(), "/moved", "/r", 1)
		},
		"plain http":      func(r *http.Request) string { return "http://" + r.Host + r.URL.RequestURI() },
		"another service": func(*http.Request) string { return "/r/HEAD" },
		"a circle":        func(r *http.Request) string { return r.URL.RequestURI() },
	} {
		lead(to)
		_, err := new(checkout.Client).Fetch(t.Context(), req)
		if name == "another service" {
			if !errors.Is(err, checkout.ErrProtocol) {
				t.Errorf("%s: %v", name, err)
			}
		} else if !errors.Is(err, checkout.ErrRedirect) {
			t.Errorf("%s: %v", name, err)
		}
	}
	select {
	case what := <-seen:
		t.Errorf("the other server received a request for %s", what)
	default:
	}
}

func TestFetch_HostsMustBeKnown(t *testing.T) {
	root := t.TempDir()
	want := commit(t, repo(t, root, "r"), policies)
	private, public, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	shell, err := git.ServeSSH(root, public)
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Close()
	_, _, hostKey, _, _, err := ssh.ParseKnownHosts(shell.KnownHosts)
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	line := func(hosts string, key ssh.PublicKey) string {
		return hosts + " " + string(ssh.MarshalAuthorizedKey(key))
	}
	host := "[127.0.0.1]" + shell.Address[strings.LastIndex(shell.Address, ":"):]
	const rsa = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDAfu4Qv4oK1SFZr3u7Q4l1C0pX0qYkV4w2f0oFqk4vNQYQv3b2m1J0S8vE1w0j8m8Cw4Y0m6b4T3l8f5mZ1eW1w6lF4o0n8oU3JYp1q5k2q2W6g2g6yN1zB3v1u9c8Vq3w5b7d1a4m9n0p2r5s8t1u3v6w9x2y5z8A1B3"
	for name, c := range map[string]struct {
		known string
		want  error
		text  string
	}{
		"known":             {line(host, hostKey), nil, ""},
		"among others":      {"# a comment\n\n" + line("example.com,"+host, otherKey) + line(host+",other", hostKey), nil, ""},
		"by a wildcard":     {line("[127.0.*]:*", hostKey), nil, ""},
		"hashed":            {hash(t, line(host, hostKey)), nil, ""},
		"nobody":            {line("example.com", hostKey), checkout.ErrHostKey, "no key of"},
		"another port":      {line("[127.0.0.1]:22", hostKey), checkout.ErrHostKey, "no key of"},
		"without the port":  {line("127.0.0.1", hostKey), checkout.ErrHostKey, "no key of"},
		"negated":           {line("*,!"+host, hostKey), checkout.ErrHostKey, "no key of"},
		"another key":       {line(host, otherKey), checkout.ErrHostKey, "differs from the known one"},
		"revoked":           {line(host, hostKey) + line("@revoked *", hostKey), checkout.ErrHostKey, "revoked"},
		"an authority":      {line("@cert-authority *", hostKey), checkout.ErrRequest, "cert-authority"},
		"only comments":     {"# nothing\n", checkout.ErrRequest, "no entry"},
		"nothing":           {"", checkout.ErrRequest, "known hosts"},
		"not a key":         {host + " ssh-ed25519 AAAA", checkout.ErrRequest, "entry 1"},
		"cut short, second": {line(host, hostKey) + host + " " + rsa[:40], checkout.ErrRequest, "entry 2"},
	} {
		req := checkout.Request{URL: "ssh://git@" + shell.Address + "/r", Auth: checkout.Auth{Key: checkout.Secret(private), KnownHosts: []byte(c.known)}}
		got, err := new(checkout.Client).Fetch(t.Context(), req)
		switch {
		case c.want == nil && (err != nil || got.Commit != want):
			t.Errorf("%s: %v", name, err)
		case c.want != nil && (!errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text)):
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.text)
		}
	}
}

// hash hides hosts as ssh-keygen does.
func hash(t *testing.T, line string) string {
	t.Helper()
	bin, err := exec.LookPath("ssh-keygen")
	if err != nil {
		// The same by hand: ssh-keygen is not on every machine.
		return byHand(line)
	}
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(bin, "-H", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte("|1|")) {
		t.Fatalf("not hashed: %s", data)
	}
	return string(data)
}

func TestValidate_RejectsInvalidRequests(t *testing.T) {
	key, _, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	ok := checkout.Auth{Key: checkout.Secret(key), KnownHosts: []byte("h ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0o0qkmZ3m2x0bZb1xk1mJ1rG5kq5m2b0bq2m2o5p6q")}
	for _, c := range []struct {
		req  checkout.Request
		text string
	}{
		{checkout.Request{}, "not https://"},
		{checkout.Request{URL: "http://example.com/r"}, "not encrypted"},
		{checkout.Request{URL: "git://example.com/r"}, "not encrypted"},
		{checkout.Request{URL: "ftp://example.com/r"}, "scheme"},
		{checkout.Request{URL: "ext::sh -c id"}, "space"},
		{checkout.Request{URL: "ext::sh"}, "not https://"},
		{checkout.Request{URL: "/etc"}, "not https://"},
		{checkout.Request{URL: "file:///etc"}, "not allowed"},
		{checkout.Request{URL: "https://example.com"}, "no path"},
		{checkout.Request{URL: "https:///r"}, "no host"},
		{checkout.Request{URL: "https://example.com:0/r"}, "port"},
		{checkout.Request{URL: "https://example.com:99999/r"}, "port"},
		{checkout.Request{URL: "https://example.com/r?x=1"}, "query"},
		{checkout.Request{URL: "https://example.com/r#x"}, "query"},
		{checkout.Request{URL: "https://ann@example.com/r"}, "credentials"},
		{checkout.Request{URL: "ssh://ann:x@example.com/r"}, "credentials"},
		{checkout.Request{URL: "git@example.com:-oProxyCommand=id"}, "dash"},
		{checkout.Request{URL: "git@example.com:r"}, "private key"},
		{checkout.Request{URL: "git@example.com:r", Auth: checkout.Auth{Key: "x"}}, "known hosts"},
		{checkout.Request{URL: "https://example.com/r", Path: "../x"}, "relative path"},
		{checkout.Request{URL: "https://example.com/r", Path: "/x"}, "relative path"},
		{checkout.Request{URL: "https://example.com/r", Path: "x/.git"}, "relative path"},
		{checkout.Request{URL: "https://example.com/r", Path: `x\y`}, "relative path"},
		{checkout.Request{URL: "https://example.com/r", Ref: "a..b"}, "valid ref name"},
		{checkout.Request{URL: "https://example.com/r", Ref: "a b"}, "valid ref name"},
		{checkout.Request{URL: "https://example.com/r", Ref: "-x"}, "valid ref name"},
		{checkout.Request{URL: "https://example.com/r", Ref: "x.lock"}, "valid ref name"},
		{checkout.Request{URL: "https://example.com/r", Limits: checkout.Limits{Files: -1}}, "files is negative"},
		{checkout.Request{URL: "https://example.com/r", Limits: checkout.Limits{Timeout: -1}}, "timeout is negative"},
	} {
		err := new(checkout.Client).Validate(c.req)
		if !errors.Is(err, checkout.ErrRequest) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v, want %q", c.req, err, c.text)
		}
	}
	for _, url := range []string{"git@github.com:org/repo.git", "ssh://git@github.com:22/org/repo", "git@[2001:db8::1]:r"} {
		if err := new(checkout.Client).Validate(checkout.Request{URL: url, Auth: ok}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestRemote_Identity(t *testing.T) {
	for _, url := range []string{
		"https://github.com/Org/repo.git", "https://github.com/org/repo", "https://GitHub.com/org/repo/", "git@github.com:org/repo.git",
		"ssh://git@github.com:2222/org/repo.git",
	} {
		r, err := checkout.ParseURL(url)
		if err != nil || r.Identity() != "github.com/org/repo" {
			t.Errorf("%s: %q, %v", url, r.Identity(), err)
		}
	}
}

// byHand is what hash does, without ssh-keygen.
func byHand(line string) string {
	host, rest, _ := strings.Cut(line, " ")
	salt := []byte("twenty bytes of salt")
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(host))
	return fmt.Sprintf("|1|%s|%s %s", base64.StdEncoding.EncodeToString(salt), base64.StdEncoding.EncodeToString(mac.Sum(nil)), rest)
}
