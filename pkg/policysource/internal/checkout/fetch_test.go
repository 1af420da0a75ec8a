package checkout_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"federator.dev/federator/pkg/policysource/internal/checkout"
	"federator.dev/federator/test/git"
)

// must returns the result of a function of the harness.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// repo makes a repository below a directory.
func repo(t *testing.T, root, name string) *git.Repo {
	t.Helper()
	return must[*git.Repo](t)(git.Init(filepath.Join(root, name)))
}

func commit(t *testing.T, r *git.Repo, files map[string]string, args ...string) string {
	t.Helper()
	return must[string](t)(r.Commit(files, args...))
}

func run(t *testing.T, r *git.Repo, args ...string) string {
	t.Helper()
	return must[string](t)(r.Run(args...))
}

// contents returns a tree as a map.
func contents(t *testing.T, tree fs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, p)
		out[p] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var policies = map[string]string{
	"policies/a/a.rego":      "package a\n",
	"policies/a/a_test.rego": "package a_test\n",
	"policies/b.rego":        "package b\n",
	"README.md":              strings.Repeat("about\n", 1000),
}

// below returns the files in policies/.
var below = map[string]string{"a/a.rego": "package a\n", "a/a_test.rego": "package a_test\n", "b.rego": "package b\n"}

// remote is a way to reach the repositories below a directory.
type remote struct {
	name string
	url  func(repo string) string
	auth checkout.Auth
}

// remotes serves a directory in each way there is.
func remotes(t *testing.T, root string) []remote {
	t.Helper()
	web := must[*git.HTTPS](t)(git.ServeHTTPS(root))
	t.Cleanup(web.Close)
	key, public, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	shell, err := git.ServeSSH(root, public)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shell.Close)
	return []remote{
		{"https", func(r string) string { return web.URL + "/" + r }, checkout.Auth{CA: web.CA}},
		{"ssh", func(r string) string { return "ssh://git@" + shell.Address + "/" + r }, checkout.Auth{Key: checkout.Secret(key), KnownHosts: shell.KnownHosts}},
		{"file", func(r string) string { return "file://" + filepath.Join(root, r) }, checkout.Auth{}},
	}
}

func TestFetch_SameResultByEveryTransport(t *testing.T) {
	root := t.TempDir()
	r := repo(t, root, "team/policies")
	commit(t, r, map[string]string{"policies/old.rego": "package old\n"})
	run(t, r, "tag", "v1", "--annotate", "--message=one")
	want := commit(t, r, policies)
	run(t, r, "gc", "--quiet") // packs with deltas
	client := &checkout.Client{AllowFile: true}
	for _, m := range remotes(t, root) {
		t.Run(m.name, func(t *testing.T) {
			req := checkout.Request{URL: m.url("team/policies"), Ref: "main", Path: "policies", Auth: m.auth}
			got, err := client.Fetch(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if got.Commit != want || got.Remote != want || got.Ref != "refs/heads/main" || got.Unchanged {
				t.Errorf("%+v, want commit %s", got, want)
			}
			if got.Author.Name != "Ann" || got.Author.Email != "ann@example.com" || got.Committer.When.Unix() != 1767225602 {
				t.Errorf("author %+v, committer %+v", got.Author, got.Committer)
			}
			if diff := contents(t, got.Tree); !equal(diff, below) {
				t.Errorf("tree %v", diff)
			}
			if got.Files != 3 || got.Bytes != 35 {
				t.Errorf("%d files of %d bytes", got.Files, got.Bytes)
			}
			if err := fstest.TestFS(got.Tree, "a/a.rego", "a/a_test.rego", "b.rego"); err != nil {
				t.Error(err)
			}

			req.Known = got.Remote
			if again, err := client.Fetch(t.Context(), req); err != nil || !again.Unchanged || again.Tree != nil {
				t.Errorf("unchanged: %+v, %v", again, err)
			}
			for ref, path := range map[string]string{"v1": "policies", "refs/tags/v1": "", "": ".", "HEAD": "policies/a/", want: "./policies"} {
				if _, err := client.Fetch(t.Context(), checkout.Request{URL: req.URL, Ref: ref, Path: path, Auth: m.auth}); err != nil {
					t.Errorf("ref %q path %q: %v", ref, path, err)
				}
			}
			tagged, err := client.Fetch(t.Context(), checkout.Request{URL: req.URL, Ref: "v1", Path: "policies", Auth: m.auth})
			if err != nil || tagged.Commit == tagged.Remote || !equal(contents(t, tagged.Tree), map[string]string{"old.rego": "package old\n"}) {
				t.Errorf("the tag: %+v, %v", tagged, err)
			}
		})
	}
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func TestFetch_ForcedPush(t *testing.T) {
	root := t.TempDir()
	r := repo(t, root, "r")
	first := commit(t, r, policies)
	second := commit(t, r, map[string]string{"policies/a.rego": "package a\n"})
	client := &checkout.Client{AllowFile: true}
	for _, m := range remotes(t, root) {
		run(t, r, "reset", "--quiet", "--hard", second)
		req := checkout.Request{URL: m.url("r"), Path: "policies", Auth: m.auth}
		got, err := client.Fetch(t.Context(), req)
		if err != nil || got.Commit != second {
			t.Fatalf("%s: %+v, %v", m.name, got, err)
		}
		run(t, r, "reset", "--quiet", "--hard", first)
		req.Known = got.Remote
		if got, err = client.Fetch(t.Context(), req); err != nil || got.Commit != first || !equal(contents(t, got.Tree), below) {
			t.Errorf("%s: %+v, %v", m.name, got, err)
		}
	}
}

func TestFetch_ErrorKinds(t *testing.T) {
	root := t.TempDir()
	commit(t, repo(t, root, "good"), policies)
	repo(t, root, "empty")
	cleared := repo(t, root, "cleared")
	commit(t, cleared, policies)
	commit(t, cleared, nil)
	both := repo(t, root, "both")
	commit(t, both, policies)
	run(t, both, "branch", "same")
	run(t, both, "tag", "same")
	linked := repo(t, root, "linked")
	commit(t, linked, map[string]string{"policies/a.rego": "package a\n", "policies/shadow": "-> /etc/shadow", "via": "-> policies"})
	commit(t, repo(t, root, "inside"), map[string]string{"policies/a.rego": "package a\n", "policies/b.rego": "-> a.rego"})
	sub := repo(t, root, "sub")
	commit(t, sub, policies)
	run(t, sub, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",policies/module")
	run(t, sub, "commit", "--quiet", "--message=submodule")
	commit(t, repo(t, root, "file"), map[string]string{"policies": "not a directory"})

	client := &checkout.Client{AllowFile: true}
	for _, m := range remotes(t, root) {
		for _, c := range []struct {
			repo, ref, path string
			want            error
			text            string
		}{
			{"none", "", "", checkout.ErrNotFound, ""},
			{"empty", "", "", checkout.ErrEmpty, ""},
			{"cleared", "", "", checkout.ErrEmpty, "no file"},
			{"cleared", "main", "policies", checkout.ErrEmpty, `no directory "policies"`},
			{"good", "", "polices", checkout.ErrEmpty, `no directory "polices"`},
			{"good", "gone", "policies", checkout.ErrRef, `"gone"`},
			{"good", "refs/heads/gone", "policies", checkout.ErrRef, "refs/heads/gone"},
			{"both", "same", "policies", checkout.ErrRef, "a branch and a tag"},
			{"linked", "", "policies", checkout.ErrContent, `"policies/shadow" is a symbolic link`},
			{"linked", "", "via", checkout.ErrContent, `"via" is a symbolic link`},
			{"inside", "", "policies", checkout.ErrContent, `"policies/b.rego" is a symbolic link`},
			{"sub", "", "policies", checkout.ErrContent, `"policies/module" is a submodule`},
			{"sub", "", "policies/module", checkout.ErrContent, `"policies/module" is a submodule`},
			{"file", "", "policies", checkout.ErrContent, `"policies" is a file`},
		} {
			_, err := client.Fetch(t.Context(), checkout.Request{URL: m.url(c.repo), Ref: c.ref, Path: c.path, Auth: m.auth})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %s %q %q: %v, want %v with %q", m.name, c.repo, c.ref, c.path, err, c.want, c.text)
			}
		}
	}
}

func TestFetch_Limits(t *testing.T) {
	root := t.TempDir()
	r := repo(t, root, "r")
	deep := strings.Repeat("d/", 5)
	commit(t, r, map[string]string{"p/a": strings.Repeat("x", 5000), "p/b": "b", "p/" + deep + "c": "c", "other/random": random(50_000)})
	client := &checkout.Client{AllowFile: true}
	for _, m := range remotes(t, root) {
		for _, c := range []struct {
			name   string
			limits checkout.Limits
			text   string
			local  bool // holds for a repository that is read in place
		}{
			{"a file's bytes", checkout.Limits{FileSize: 4999}, "p/a has 5000 bytes", true},
			{"all bytes", checkout.Limits{TreeSize: 5001}, "more than 5001 bytes", true},
			{"files", checkout.Limits{Files: 2}, "more than 2 files", true},
			{"directories", checkout.Limits{Dirs: 5}, "more than 5 directories", true},
			{"depth", checkout.Limits{Depth: 4}, "more than 4 directories deep", true},
			{"references", checkout.Limits{Refs: 50}, "the remote's list of refs", false},
			{"the pack", checkout.Limits{Pack: 10_000}, "the pack is larger", false},
			{"the answer", checkout.Limits{Pack: 10}, "", false},
			{"unpacked", checkout.Limits{Unpacked: 40_000}, "more than 40000 bytes unpacked", false},
			{"objects", checkout.Limits{Objects: 5}, "objects, more than 5", false},
		} {
			if m.name == "file" && !c.local {
				continue
			}
			req := checkout.Request{URL: m.url("r"), Path: "p", Auth: m.auth, Limits: c.limits}
			if _, err := client.Fetch(t.Context(), req); !errors.Is(err, checkout.ErrLimit) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %s: %v, want %q", m.name, c.name, err, c.text)
			}
		}
		exact := checkout.Limits{FileSize: 5000, TreeSize: 5002, Files: 3, Dirs: 6, Depth: 5}
		if _, err := client.Fetch(t.Context(), checkout.Request{URL: m.url("r"), Path: "p", Auth: m.auth, Limits: exact}); err != nil {
			t.Errorf("%s: just within: %v", m.name, err)
		}
	}
}

// random returns a text that does not compress, the same each time.
func random(n int) string {
	out := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = byte(x)
	}
	return string(out)
}

func TestFetch_EndsWithContextAndTimeout(t *testing.T) {
	root := t.TempDir()
	commit(t, repo(t, root, "r"), policies)
	web := must[*git.HTTPS](t)(git.ServeHTTPS(root))
	defer web.Close()
	requested := make(chan struct{}, 1)
	web.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		requested <- struct{}{}
		<-r.Context().Done()
		return true
	})
	req := checkout.Request{URL: web.URL + "/r", Auth: checkout.Auth{CA: web.CA}}

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-requested; cancel() }()
	if _, err := new(checkout.Client).Fetch(ctx, req); !errors.Is(err, context.Canceled) || !errors.Is(err, checkout.ErrUnreachable) {
		t.Errorf("cancelled: %v", err)
	}
	req.Limits.Timeout = 1
	if _, err := new(checkout.Client).Fetch(t.Context(), req); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("out of time: %v", err)
	}
}
