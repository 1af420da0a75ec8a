package policy_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"federator.dev/federator/pkg/policy"
)

func paths(s policy.Source) string {
	var list []string
	for _, f := range s.Files {
		list = append(list, fmt.Sprintf("%s:%d", f.Path, len(f.Data)))
	}
	return strings.Join(list, " ")
}

func TestReadSource_ReadsPoliciesAndListsOtherFiles(t *testing.T) {
	t.Parallel()
	s, err := policy.ReadSource("src", fstest.MapFS{
		"a/p.rego":        {Data: []byte("package p")},
		"a/p_test.rego":   {Data: []byte("package p_test")},
		"a/p_fleet.yaml":  {Data: []byte("cases: []")},
		"b.rego":          {Data: nil},
		"data.json":       {Data: []byte("{}")},
		".git/x.rego":     {Data: []byte("package x")},
		"a/.hidden/x":     {Data: []byte("x")},
		".dot.rego":       {Data: []byte("package d")},
		"names.rego/y.md": {Data: []byte("y")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Name+" "+paths(s), "src .dot.rego:9 a/p.rego:9 a/p_fleet.yaml:0 a/p_test.rego:14 b.rego:0 data.json:0 names.rego/y.md:0"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// What it does not take, Load still hears of.
	if _, err := policy.Load([]policy.Source{s}, policy.LoadOptions{}); err == nil || !strings.Contains(err.Error(), "src/data.json: error: policies have no data files") {
		t.Errorf("got %v", err)
	}
}

// Other YAML may be as large as it likes; a template that is not read would be one that finds nothing.
func TestReadSource_LargeDocuments(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("# filler\n", 4<<20/9+1)
	if s, err := policy.ReadSource("", fstest.MapFS{"values.yaml": {Data: []byte("a: 1\n" + large)}}); err != nil || paths(s) != "values.yaml:0" {
		t.Errorf("%q, %v", paths(s), err)
	}
	_, err := policy.ReadSource("", fstest.MapFS{"template.yaml": {Data: []byte("apiVersion: templates.gatekeeper.sh/v1\n" + large)}})
	if err == nil || !strings.Contains(err.Error(), "template.yaml: larger than") {
		t.Errorf("got %v", err)
	}
}

// TestReadSource_FollowsLinksWithinItsTree reads a mounted ConfigMap, whose files are
// links to those of a directory that begins with dots, and no file beside it.
func TestReadSource_FollowsLinksWithinItsTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (policy.Source, error) {
		root, err := os.OpenRoot(filepath.Join(dir, "mount"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = root.Close() }()
		return policy.ReadSource("", root.FS())
	}
	write("mount/..2026_03_01/p.rego", "package p")
	write("secret.rego", "package secret")
	link("..2026_03_01", "mount/..data")
	link("..data/p.rego", "mount/p.rego")
	link("/etc/hostname", "mount/other")
	link("..", "mount/up") // directories are not followed: this one has no end
	s, err := read()
	if want := "..data:0 other:0 p.rego:9 up:0"; err != nil || paths(s) != want {
		t.Errorf("%s, %v, want %s", paths(s), err, want)
	}
	for name, to := range map[string]string{"out": "../secret.rego", "absolute": filepath.Join(dir, "secret.rego"), "gone": "nothing", "self": "self.rego", "dir": "..data"} {
		link(to, "mount/"+name+".rego")
		if s, err := read(); err == nil || !strings.Contains(err.Error(), name+".rego") {
			t.Errorf("%s: %s, %v", name, paths(s), err)
		}
		if err := os.Remove(filepath.Join(dir, "mount", name+".rego")); err != nil {
			t.Fatal(err)
		}
	}
}

// refusing is a tree of which some files cannot be opened.
type refusing struct {
	fs.FS
	opened func(name string) error
}

func (r refusing) Open(name string) (fs.File, error) {
	if err := r.opened(name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return r.FS.Open(name)
}

func (r refusing) Stat(name string) (fs.FileInfo, error) { return fs.Stat(r.FS, name) }

func TestReadSource_RefusesUnreadableFiles(t *testing.T) {
	t.Parallel()
	never := func(name string) error {
		if strings.HasSuffix(name, ".rego") {
			panic("opened " + name) // which for a pipe has no end
		}
		return nil
	}
	denied := func(name string) error {
		if name == "a/p.rego" || name == "closed" {
			return fs.ErrPermission
		}
		return nil
	}
	small := &fstest.MapFile{Data: []byte("package p")}
	large := &fstest.MapFile{Data: make([]byte, 4<<20)}
	many := fstest.MapFS{}
	for i := range 17 {
		many[fmt.Sprintf("p%02d.rego", i)] = large
	}
	crowd := fstest.MapFS{}
	for i := range 100_000 {
		crowd[fmt.Sprintf("f%d", i)] = &fstest.MapFile{}
	}
	for name, test := range map[string]struct {
		tree fs.FS
		want string
	}{
		"a pipe":                 {refusing{fstest.MapFS{"p.rego": {Mode: fs.ModeNamedPipe}}, never}, "p.rego: not a regular file"},
		"a device":               {refusing{fstest.MapFS{"p.rego": {Mode: fs.ModeDevice}}, never}, "p.rego: not a regular file"},
		"a socket":               {refusing{fstest.MapFS{"p.rego": {Mode: fs.ModeSocket}}, never}, "p.rego: not a regular file"},
		"a file that is closed":  {refusing{fstest.MapFS{"a/p.rego": small}, denied}, "a/p.rego: permission denied"},
		"a closed directory":     {refusing{fstest.MapFS{"closed/p.rego": small, "q.rego": small}, denied}, "closed: permission denied"},
		"a file too large":       {fstest.MapFS{"p.rego": {Data: make([]byte, 4<<20+1)}}, "p.rego: larger than 4194304 bytes"},
		"files too large at all": {many, "p16.rego: the policies have more than 67108864 bytes in total"},
		"too many files":         {crowd, "more than 100000 files and directories"},
		"no tree":                {os.DirFS(filepath.Join(t.TempDir(), "none")), "no such file"},
	} {
		s, err := policy.ReadSource("src", test.tree)
		if err == nil || !strings.HasPrefix(err.Error(), `source "src": `) || !strings.Contains(err.Error(), test.want) || len(s.Files) > 0 {
			t.Errorf("%s: %.200v\nwant %s", name, err, test.want)
		}
	}
	if _, err := policy.ReadSource("", refusing{fstest.MapFS{"a/p.rego": small}, denied}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v is no fs.ErrPermission", err)
	}
	delete(many, "p16.rego")
	if _, err := policy.ReadSource("", many); err != nil {
		t.Errorf("what fits is refused: %v", err)
	}
}
