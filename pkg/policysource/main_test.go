package policysource_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/test/git"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rule is a policy that objects to Pods with a label.
func rule(pkg, label string) string {
	return fmt.Sprintf(`# METADATA
# title: No %[2]s
# description: Pods have no label %[2]s.
# custom:
#   severity: low
#   kinds: ["Pod"]
package %[1]s

violation contains {"msg": "has the label"} if input.object.metadata.labels.%[2]s
`, pkg, label)
}

// test is a test of rule, that passes when the labels are the same.
func test(pkg, label string) string {
	return fmt.Sprintf(`package %[1]s_test

import data.%[1]s

test_label if count(%[1]s.violation) == 1 with input as {"object": {"metadata": {"labels": {"%[2]s": "x"}}}}
`, pkg, label)
}

// good is a tree of one policy and its test.
func good(label string) map[string]string {
	return map[string]string{"policies/team/team.rego": rule("team", label), "policies/team/team_test.rego": test("team", label), "README.md": "about"}
}

// plus returns a tree with more files.
func plus(tree map[string]string, more ...string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, tree)
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

func newRepo(t *testing.T, root, name string) *git.Repo {
	t.Helper()
	r, err := git.Init(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func commit(t *testing.T, r *git.Repo, tree map[string]string, args ...string) string {
	t.Helper()
	hash, err := r.Commit(tree, args...)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func source(name string, r *git.Repo) policysource.Source {
	return policysource.Source{Name: name, URL: "file://" + r.Dir, Ref: "main", Path: "policies", Interval: time.Hour}
}

// logs collects log output.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func options() policysource.Options {
	return policysource.Options{AllowFile: true}
}

// start runs a manager until the test ends.
func start(t *testing.T, opts policysource.Options, sources ...policysource.Source) *policysource.Manager {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	m, err := policysource.NewManager(opts)
	if err != nil {
		t.Fatal(err)
	}
	set(t, m, sources...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

func set(t *testing.T, m *policysource.Manager, sources ...policysource.Source) {
	t.Helper()
	if err := m.SetSources(sources); err != nil {
		t.Fatal(err)
	}
}

// await waits for a state.
func await(t *testing.T, m *policysource.Manager, what string, ok func(*policysource.State) bool) *policysource.State {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		st := m.State()
		if ok(st) {
			return st
		}
		select {
		case <-st.Replaced():
		case <-deadline:
			t.Fatalf("%s: %+v", what, st.Status)
		}
	}
}

// active waits for a commit of a source to be active and current.
func active(t *testing.T, m *policysource.Manager, name, commit string) *policysource.State {
	t.Helper()
	return await(t, m, name+" at "+commit, func(st *policysource.State) bool {
		s := st.Status[name]
		return s.Phase == policysource.Active && s.Current && s.Active != nil && s.Active.Hash == commit
	})
}

// after asks a source to sync, and waits for a status that came of that.
func after(t *testing.T, m *policysource.Manager, name string, ok func(policysource.Status) bool) *policysource.State {
	t.Helper()
	if err := m.Sync(name); err != nil {
		t.Fatal(err)
	}
	return await(t, m, name, func(st *policysource.State) bool { return ok(st.Status[name]) })
}

// phase is a condition of after.
func phase(p policysource.Phase, reason string) func(policysource.Status) bool {
	return func(s policysource.Status) bool { return s.Phase == p && s.Reason == reason }
}

// names returns the packages of a state's set.
func names(st *policysource.State) string {
	var out []string
	for _, p := range st.Set.Packages {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
