package docs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"federator.dev/federator/test/kube"
)

// exception is a kind of command that is not run as it stands, and how it is shown to
// be right instead.
type exception struct {
	pattern *regexp.Regexp // of the whole command
	check   func(s *stage, match []string) error
	reason  string
}

// exceptions are all commands that are not run. Every other one is.
var exceptions = []exception{
	{regexp.MustCompile(`^(?:DEMO=ci )?make ([a-z-]+)( [A-Z]+=('[^']*'|\S+))*\s*(#.*)?$`), target, "targets of the Makefile build, or run tests (this one among them); the target exists"},
	{regexp.MustCompile(`^docker build -t \S+ (\S+)\s*(#.*)?$`), dockerfile, "there is no container runtime; the Dockerfile is there, and make static builds what it builds"},
	{regexp.MustCompile(`^docker push \S+$`), nil, "there is no registry"},
	{regexp.MustCompile(`^curl -sf (http://\S+)\s*(#.*)?$`), get, "not every machine has curl; Go asks instead"},
	{regexp.MustCompile(`^\.ci/run\s*(#.*)?$`), nil, "it runs this test"},
}

// replacements are what stands for something else here, in commands and files.
func (s *stage) replacements() []struct{ from, to, reason string } {
	query := ""
	if s.server != nil { // else nothing is replaced: no command of the document runs
		query = s.server.addresses["query"]
	}
	return []struct{ from, to, reason string }{
		{"https://federator.example.com:8443", "https://" + query, "the address of the query API that serves the hub's fleet"},
		{"https://git.example.com/platform/fleet-policies.git", "file://" + s.remote, "the repository, on this machine"},
		{"127.0.0.1:9443", s.agents, "another federator of this machine may have the address"},
		{"http://127.0.0.1:8081", "http://" + s.admin, "another federator of this machine may have the default address"},
		{"http://127.0.0.1:8080", "http://" + s.health, "another federator of this machine may have the default address"},
	}
}

// replace replaces what stands for something else.
func (s *stage) replace(text string) string {
	for _, r := range s.replacements() {
		text = strings.ReplaceAll(text, r.from, r.to)
	}
	return text
}

// servers are commands that go on until the end of the document.
var servers = regexp.MustCompile(`^federator (?:serve\b|agent --)`)

// watches are commands that print and go on: what they print first is looked at.
var watches = regexp.MustCompile(`(?m)^(?:kubectl|federator)\b.* (?:-w|--watch)\b`)

// addresses adds flags for addresses of this test's own, where a command would listen at
// or ask the default ones, which another federator on this machine may have.
func (s *stage) addresses(text string) string {
	switch {
	case servers.MatchString(text) && !strings.Contains(text, "--print-config"):
		return strings.Replace(text, "serve", fmt.Sprintf("serve --listen %s --admin %s --query 127.0.0.1:0", s.health, s.admin), 1)
	case strings.HasPrefix(text, "federator members") && !strings.Contains(text, "--c") && !strings.Contains(text, "--hub"):
		return strings.Replace(text, "members", "members --server http://"+s.admin, 1)
	}
	return text
}

// target is an error unless make knows a target.
func target(_ *stage, match []string) error {
	cmd := exec.Command("make", "-n", match[1])
	cmd.Dir = root
	// A make that runs the tests must not have a say in this one.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make -n %s: %w\n%s", match[1], err, out)
	}
	return nil
}

func dockerfile(_ *stage, match []string) error {
	_, err := os.Stat(filepath.Join(root, match[1], "Dockerfile"))
	return err
}

// get is an error unless a server answers with 200, soon.
func get(s *stage, match []string) error {
	return kube.Until(context.Background(), patience, func() error {
		resp, err := http.Get(s.replace(match[1]))
		if err != nil {
			return err
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// except returns the exception that a command is, if it is one.
func except(text string) (exception, []string, bool) {
	for _, e := range exceptions {
		if m := e.pattern.FindStringSubmatch(text); m != nil {
			return e, m, true
		}
	}
	return exception{}, nil, false
}

func TestExceptions_AreAllUsed(t *testing.T) {
	used := map[string]bool{}
	for _, name := range documents(t) {
		for _, b := range load(t, name) {
			if !languages[b.language] {
				continue
			}
			for _, c := range b.commands() {
				if e, _, ok := except(c.text); ok {
					used[e.pattern.String()] = true
				}
			}
		}
	}
	for _, e := range exceptions {
		if !used[e.pattern.String()] {
			t.Errorf("no command is like %s any more", e.pattern)
		}
		if e.reason == "" {
			t.Errorf("%s has no reason", e.pattern)
		}
	}
}

func keys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }
