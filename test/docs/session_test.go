package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"federator.dev/federator/test/kube"
)

// patience is how long something may take that takes a moment on an idle machine.
const patience = 60 * time.Second

func TestDocuments_CommandsRun(t *testing.T) {
	s := built(t)
	for _, name := range documents(t) {
		t.Run(name, func(t *testing.T) {
			all := load(t, name)
			s.ready(t, all)
			newSession(t, s).play(t, name, all)
		})
	}
}

// session is a reader at a terminal, who goes through one document.
type session struct {
	*stage
	dir, state string
	running    []*process
}

func newSession(t *testing.T, s *stage) *session {
	t.Helper()
	dir := t.TempDir()
	r := &session{stage: s, dir: filepath.Join(dir, "work"), state: filepath.Join(dir, "state")}
	home := filepath.Join(dir, "home")
	for _, d := range []string{r.dir, r.state, filepath.Join(home, ".kube")} {
		must(t, os.MkdirAll(d, 0o755))
	}
	for _, linked := range []string{"charts", "policies"} {
		to, err := filepath.Abs(filepath.Join(root, linked))
		must(t, err)
		must(t, os.Symlink(to, filepath.Join(r.dir, linked)))
	}
	must(t, os.WriteFile(filepath.Join(home, ".kube", "config"), s.kubeconfig, 0o600))
	must(t, os.WriteFile(filepath.Join(r.state, "cwd"), []byte(r.dir), 0o600))
	env := map[string]string{
		"HOME": home, "PATH": s.bin + string(os.PathListSeparator) + os.Getenv("PATH"), "TMPDIR": os.TempDir(),
		"KUBECACHEDIR": filepath.Join(s.dir, "kubectl"), "PAGER": "cat",
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1",
		"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.com", "GIT_COMMITTER_NAME": "Ann", "GIT_COMMITTER_EMAIL": "ann@example.com",
	}
	var text strings.Builder
	for name, value := range env {
		fmt.Fprintf(&text, "export %s='%s'\n", name, value)
	}
	must(t, os.WriteFile(filepath.Join(r.state, "env"), []byte(text.String()), 0o600))
	t.Cleanup(func() {
		for _, p := range r.running {
			if err := p.stop(); err != nil {
				t.Errorf("%v\n%s", err, p.output())
			}
		}
	})
	return r
}

// play runs what a document has, in order. After a failure it goes no further: what
// follows may rest on it.
func (r *session) play(t *testing.T, name string, all []block) {
	for _, b := range all {
		if file := b.file(); file != "" {
			at := filepath.Join(r.dir, filepath.FromSlash(file))
			must(t, os.MkdirAll(filepath.Dir(at), 0o755))
			must(t, os.WriteFile(at, []byte(r.replace(b.text)), 0o600))
			continue
		}
		if b.language == "yaml" {
			if err := r.accepted(t.Context(), b.text); err != nil {
				t.Errorf("%s:%d: the hub refuses this: %v", name, b.line, err)
			}
			continue
		}
		if !languages[b.language] {
			continue
		}
		for _, c := range b.commands() {
			began := time.Now()
			out, err := r.run(t.Context(), c)
			if err != nil {
				t.Fatalf("%s:%d: %s\n%v", name, c.line, c.text, err)
			}
			t.Logf("%s:%d: %v: %s\n%s", name, c.line, time.Since(began).Round(time.Millisecond), c.text, out)
		}
	}
}

// accepted is an error unless the hub accepts objects in a dry run.
func (r *session) accepted(ctx context.Context, manifests string) error {
	out, code, err := r.bash(ctx, "kubectl --context hub apply --server-side --dry-run=server -f - <<'END'\n"+manifests+"END\n", nil)
	if err == nil && code != "0" {
		err = errors.New(out)
	}
	return err
}

// run runs a command, or checks what stands for that, and returns what it prints.
func (r *session) run(ctx context.Context, c command) (out string, err error) {
	if e, match, ok := except(c.text); ok {
		if e.check == nil {
			return "", nil
		}
		return "", e.check(r.stage, match)
	}
	text := r.addresses(r.replace(c.text))
	if servers.MatchString(c.text) && !strings.Contains(c.text, "--print-config") {
		p, err := r.start(ctx, text)
		if p != nil {
			r.running = append(r.running, p)
		}
		return "", err
	}
	var enough func(string) bool
	if watches.MatchString(c.text) {
		enough = func(out string) bool { return strings.Contains(out, "\n") && matches(c.want, out) == nil }
	}
	var first error
	last := kube.Until(ctx, patience, func() error {
		var code string
		out, code, err = r.bash(ctx, text, enough)
		switch {
		case err != nil:
		case code != c.exit && enough == nil:
			err = fmt.Errorf("it exits with %s, not %s:\n%s", code, c.exit, out)
		default:
			err = matches(c.want, out)
		}
		if first == nil {
			first = err
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // a process for each look takes time from what it looks at
		}
		return err
	})
	if last != nil && last.Error() != first.Error() {
		return out, fmt.Errorf("at first: %w\nat last: %w", first, last)
	}
	return out, last
}

// bash runs a command until it ends or, with enough, until that has seen enough of what it
// prints. Errors are of bash, not of the command.
func (r *session) bash(ctx context.Context, text string, enough func(string) bool) (out, code string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	script := fmt.Sprintf(". %[1]s/env; cd \"$(cat %[1]s/cwd)\"; set -o pipefail\n%[2]s\ncode=$?; export -p > %[1]s/env; pwd > %[1]s/cwd; exit $code\n", r.state, text)
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Env = []string{}
	w := &lines{}
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if enough != nil {
		w.call = func() {
			if enough(w.b.String()) {
				cancel()
			}
		}
	}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case enough != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return w.String(), "0", nil
	case ctx.Err() != nil:
		return w.String(), "", fmt.Errorf("it has not ended: %w\n%s", ctx.Err(), w)
	case errors.As(err, &exit):
		return w.String(), strconv.Itoa(exit.ExitCode()), nil
	}
	return w.String(), "0", err
}

// matches is an error unless a command has printed what a document shows.
func matches(want []string, got string) error {
	if want == nil {
		return nil
	}
	var pattern strings.Builder
	for _, line := range want {
		line, more := strings.CutSuffix(line, "...")
		words := strings.Fields(line)
		for i, word := range words {
			if words[i] = regexp.QuoteMeta(word); strings.ContainsAny(word, "0123456789") {
				words[i] = `\S+`
			}
		}
		if more && len(words) == 0 {
			pattern.WriteString(`(?:[^\n]*\n)*?`)
			continue
		}
		pattern.WriteString(`[ \t]*` + strings.Join(words, `[ \t]+`))
		if more {
			pattern.WriteString(`[^\n]*`)
		}
		pattern.WriteString(`[ \t]*\n`)
	}
	if !regexp.MustCompile(`^` + pattern.String() + `\s*$`).MatchString(strings.TrimRight(got, "\n") + "\n") {
		return fmt.Errorf("it prints\n%s\nand not\n%s", got, strings.Join(want, "\n"))
	}
	return nil
}

func TestMatches_NumbersAndSpacesMayDiffer(t *testing.T) {
	for _, c := range []struct {
		want string
		ok   bool
	}{
		{"NAME  AGE\nweb-0 3s", true},
		{"NAME AGE\nweb-0 3s\nweb-1 3s", false},
		{"NAME OLD\nweb-0 3s", false},
		{"NAME AGE\n...", true},
		{"NAME ...\nweb-7 ...", true},
	} {
		if err := matches(strings.Split(c.want, "\n"), "NAME   AGE\nweb-5  12m\n"); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.want, err)
		}
	}
}

// lines is output that may be read while it is written. It calls at each write.
type lines struct {
	mu   sync.Mutex
	b    bytes.Buffer
	call func()
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(p)
	if l.call != nil {
		l.call()
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
