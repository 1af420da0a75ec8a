package git

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Repo is a repository with a work tree.
type Repo struct {
	Dir string
	Env []string // added to what git gets

	now time.Time // of the next commit
}

// Init makes a repository in a new directory, with the branch main and no commit.
func Init(dir string) (*Repo, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	r := &Repo{Dir: dir, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	_, err := r.Run("init", "--quiet", "--initial-branch=main")
	return r, err
}

// Run runs git in the repository and returns what it prints, without the last
// line's end.
func (r *Repo) Run(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.Dir
	cmd.Env = append(environ(), r.Env...)
	date := fmt.Sprintf("%d +0000", r.now.Unix())
	cmd.Env = append(cmd.Env, "GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

// environ is git's environment: no configuration but the repository's.
func environ() []string {
	env := []string{
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com",
		"GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com",
	}
	for _, name := range []string{"PATH", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Write makes files the whole of the work tree. A text that begins with "-> " is
// the target of a symbolic link.
func (r *Repo) Write(files map[string]string) error {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != ".git" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(r.Dir, e.Name())))
		}
	}
	for name, text := range files {
		at := filepath.Join(r.Dir, filepath.FromSlash(name))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755))
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = errors.Join(err, os.Symlink(target, at))
		} else {
			err = errors.Join(err, os.WriteFile(at, []byte(text), 0o644))
		}
	}
	return err
}

// Commit makes files the whole of a new commit, a second after the last, and
// returns its hash. It may be as the last. Arguments are git commit's.
func (r *Repo) Commit(files map[string]string, args ...string) (string, error) {
	if err := r.Write(files); err != nil {
		return "", err
	}
	if _, err := r.Run("add", "--all"); err != nil {
		return "", err
	}
	r.now = r.now.Add(time.Second)
	if _, err := r.Run(append([]string{"commit", "--quiet", "--allow-empty", "--message=change"}, args...)...); err != nil {
		return "", err
	}
	return r.Run("rev-parse", "HEAD")
}
