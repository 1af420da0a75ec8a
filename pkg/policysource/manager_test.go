package policysource_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/test/git"
)

func TestManager_CommitThatPassesAllGatesIsActive(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	hash := commit(t, r, plus(good("bad"), "policies/fleetpolicy.yaml", "kind: FleetPolicy\n"))
	opts := options()
	opts.Base = []policy.Source{{Name: "base", Files: []policy.File{{Path: "b.rego", Data: []byte(rule("base", "x"))}}}}
	m := start(t, opts, source("team", r))
	if got := names(m.State()); got != "base" {
		t.Errorf("before: %q", got)
	}
	st := active(t, m, "team", hash)
	p := st.Policies["team"]
	if names(st) != "base team" || len(p.Packages) != 1 || p.Packages[0] != "team" || !p.Current || p.Since.IsZero() {
		t.Errorf("%q, %+v", names(st), p)
	}
	want := policysource.Commit{Hash: hash, Ref: "refs/heads/main", Path: "policies", Author: "Ann <ann@example.com>", Time: time.Unix(1767225601, 0).UTC()}
	if p.Commit != want {
		t.Errorf("%+v, want %+v", p.Commit, want)
	}
	if data, err := fs.ReadFile(p.Tree, "fleetpolicy.yaml"); err != nil || string(data) != "kind: FleetPolicy\n" {
		t.Errorf("%q, %v", data, err)
	}
	s, ok := m.Status("team")
	if !ok || s.Newest == nil || *s.Newest != want || *s.Active != want || s.Contact.IsZero() || !s.Next.After(s.Contact) || s.Fetches != 1 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
	if m.Active()["team"].Commit != want {
		t.Errorf("%+v", m.Active())
	}

	// A remote that has nothing new gives no new set, and no fetch.
	again := after(t, m, "team", func(s policysource.Status) bool { return s.Contact.After(st.Status["team"].Contact) })
	if again.Set != st.Set || again.Generation != st.Generation || again.Status["team"].Fetches != 1 {
		t.Errorf("%d, %+v", again.Generation, again.Status["team"])
	}

	next := commit(t, r, good("worse"))
	if err := m.Sync("team"); err != nil {
		t.Fatal(err)
	}
	if st = active(t, m, "team", next); st.Set == again.Set || st.Generation != again.Generation+1 {
		t.Errorf("generation %d", st.Generation)
	}
}

func TestManager_BadCommitsLeaveTheLastGoodObserved(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	last := commit(t, r, good("bad"))
	src := source("team", r)
	src.Limits.FileSize = 10_000
	m := start(t, options(), src)
	before := active(t, m, "team", last)
	for _, c := range []struct {
		name    string
		tree    map[string]string
		phase   policysource.Phase
		reason  string
		message string
		finding string // of the first finding, file:line
	}{
		{"a syntax error", plus(good("bad"), "policies/team/team.rego", rule("team", "bad")+"\nx := {\n"), policysource.Compile, "Compile", "does not compile: policies/team/team.rego:", "policies/team/team.rego:12"},
		{"an unknown function", plus(good("bad"), "policies/new.rego", rule("new", "x")+"\ny := nosuch(1)\n"), policysource.Compile, "Compile", "nosuch", "policies/new.rego:11"},
		{"a forbidden builtin", plus(good("bad"), "policies/new.rego", rule("new", "x")+"\ny := http.send({})\n"), policysource.Compile, "Compile", "http.send", "policies/new.rego:11"},
		{"data", plus(good("bad"), "policies/data.json", "{}"), policysource.Compile, "Compile", "data.json", "policies/data.json:0"},
		{"an error that lint finds", plus(good("bad"), "policies/new.rego", strings.Replace(rule("new", "x"), `{"msg": "has the label"}`, `{"msg": "x", "remedy": {"action": "delete"}}`, 1)), policysource.Lint, "Lint", "policies/new.rego:9:43: error: custom.remedies has no delete", "policies/new.rego:9"},
		{"a failing test", plus(good("bad"), "policies/team/team_test.rego", test("team", "other")), policysource.Test, "Test", "policies/team/team_test.rego:5", "policies/team/team_test.rego:5"},
		{"an emptied path", plus(nil, "README.md", "about"), policysource.Content, "Emptied", `no directory "policies"`, ""},
		{"an emptied repository", nil, policysource.Content, "Emptied", "no directory", ""},
		{"only a README", plus(nil, "policies/README.md", "about"), policysource.Content, "Emptied", "contains no policy in", ""},
		{"only tests", plus(nil, "policies/team_test.rego", test("team", "bad")), policysource.Content, "Emptied", "contains no policy in", ""},
		{"no METADATA", plus(nil, "policies/lib.rego", "package lib\n\nx := 1\n"), policysource.Compile, "Compile", "no METADATA", "policies/lib.rego:1"},
		{"only a library", plus(nil, "policies/lib.rego", "package federator.lib.x\n\nx := 1\n"), policysource.Content, "Emptied", "no package with METADATA", ""},
		{"a symbolic link", plus(good("bad"), "policies/l.rego", "-> ../../../etc/passwd"), policysource.Content, "Refused", `"policies/l.rego" is a symbolic link`, ""},
		{"a huge file", plus(good("bad"), "policies/huge", strings.Repeat("x", 10_001)), policysource.Content, "TooLarge", "policies/huge has 10001 bytes", ""},
	} {
		newest := commit(t, r, c.tree)
		was := m.State().Status["team"].Contact
		st := after(t, m, "team", func(s policysource.Status) bool {
			return s.Contact.After(was) && phase(c.phase, c.reason)(s) && strings.Contains(s.Message, c.message) && (s.Newest == nil || c.phase == policysource.Content || s.Newest.Hash == newest)
		})
		s := st.Status["team"]
		if st.Set != before.Set || s.Active.Hash != last || s.Current || st.Policies["team"].Current || s.Failures != 0 {
			t.Errorf("%s: %+v", c.name, s)
		}
		if c.finding != "" && (len(s.Findings) == 0 || fmt.Sprintf("%s:%d", s.Findings[0].File, s.Findings[0].Line) != c.finding) {
			t.Errorf("%s: findings %v, want %s", c.name, s.Findings, c.finding)
		}
		// Checked again, it still fails, and the status still says so.
		was = s.Contact
		if c.phase != policysource.Content {
			st = after(t, m, "team", func(s policysource.Status) bool { return s.Contact.After(was) })
			if s := st.Status["team"]; !phase(c.phase, c.reason)(s) || s.Current {
				t.Errorf("%s, again: %+v", c.name, s)
			}
		}
	}
	// A forced push back to the active commit is like a new commit.
	if _, err := r.Run("reset", "--quiet", "--hard", last); err != nil {
		t.Fatal(err)
	}
	if err := m.Sync("team"); err != nil {
		t.Fatal(err)
	}
	if st := active(t, m, "team", last); st.Set != before.Set {
		t.Error("the set was replaced by its like")
	}
}

func TestManager_TemplatesAloneArePolicies(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	hash := commit(t, r, plus(nil, "policies/library.yaml", `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: named}
spec:
  crd: {spec: {names: {kind: Named}}}
  targets:
    - target: admission.k8s.gatekeeper.sh
      rego: |
        package named
        violation[{"msg": "it is bad"}] { input.review.object.metadata.name == "bad" }
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Named
metadata: {name: pods}
spec: {match: {kinds: [{apiGroups: [""], kinds: [Pod]}]}}
`))
	m := start(t, options(), source("team", r))
	if st := active(t, m, "team", hash); st.Set.Constraint("Named/pods") == nil || !st.Policies["team"].Current {
		t.Errorf("the constraint is not there: %+v", st.Status["team"])
	}
}

func TestManager_ForcedPush(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	second := commit(t, r, good("two"))
	m := start(t, options(), source("team", r))
	active(t, m, "team", second)
	for _, hash := range []string{first, second} {
		if _, err := r.Run("reset", "--quiet", "--hard", hash); err != nil {
			t.Fatal(err)
		}
		if err := m.Sync("team"); err != nil {
			t.Fatal(err)
		}
		active(t, m, "team", hash)
	}
	if _, err := r.Run("branch", "--move", "elsewhere"); err != nil {
		t.Fatal(err)
	}
	st := after(t, m, "team", phase(policysource.Fetch, "NoReference"))
	if s := st.Status["team"]; s.Current || s.Active.Hash != second {
		t.Errorf("a branch that is gone: %+v", s)
	}
}

func TestManager_UnreachableRemoteLeavesPoliciesCurrent(t *testing.T) {
	const secret = "s3cr3t-token"
	root := t.TempDir()
	r := newRepo(t, root, "r")
	hash := commit(t, r, good("bad"))
	web, err := git.ServeHTTPS(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	web.RequireToken(secret)
	var logged logs
	opts := options()
	opts.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opts.MinBackoff, opts.MaxBackoff = time.Hour, time.Hour // fetches are triggered
	src := source("team", r)
	src.URL, src.Auth = web.URL+"/r", policysource.Auth{Token: secret, CA: web.CA}
	m := start(t, opts, src)
	active(t, m, "team", hash)

	web.RequireToken("rotated")
	next := commit(t, r, good("worse"))
	st := after(t, m, "team", phase(policysource.Fetch, "Denied"))
	if s := st.Status["team"]; !s.Current || s.Active.Hash != hash || s.Failures != 1 || !strings.Contains(s.Message, "401") {
		t.Errorf("revoked: %+v", s)
	}
	web.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusBadGateway)
		return true
	})
	st = after(t, m, "team", phase(policysource.Fetch, "Unreachable"))
	if s := st.Status["team"]; !s.Current || s.Active.Hash != hash || s.Failures < 2 {
		t.Errorf("unreachable: %+v", s)
	}
	text := fmt.Sprintf("%+v %s", st.Status, logged.String())
	if strings.Contains(text, secret) || !strings.Contains(text, "401") {
		t.Errorf("a secret is in, or the error is not: %s", text)
	}

	web.Intercept(nil)
	src.Auth.Token = "rotated"
	set(t, m, src) // a new credential is tried at once
	if s := active(t, m, "team", next).Status["team"]; s.Failures != 0 {
		t.Errorf("after: %+v", s)
	}
}

func TestManager_CompilesSourcesTogether(t *testing.T) {
	root := t.TempDir()
	views, users := newRepo(t, root, "views"), newRepo(t, root, "users")
	commit(t, views, plus(nil, "policies/v.rego", rule("views", "x")+"\nview.names[name] contains {} if name := input.object.metadata.name\n"))
	first := commit(t, users, plus(nil, "policies/u.rego", strings.Replace(rule("users", "x"), "violation contains {\"msg\": \"has the label\"} if ",
		"violation contains {\"msg\": \"has the label\"} if data.fleet.views[\"views\"].names[input.object.metadata.name]\n\nviolation contains {\"msg\": \"label\"} if ", 1)))
	opts := options()
	opts.Test = func(context.Context, policysource.Candidate) ([]policy.Finding, error) { return nil, nil }
	m := start(t, opts, source("users", users))
	await(t, m, "users alone", func(st *policysource.State) bool {
		return phase(policysource.Compile, "Compile")(st.Status["users"])
	})
	// The package that it needs becomes active: it is evaluated again without a sync.
	set(t, m, source("users", users), source("views", views))
	st := active(t, m, "users", first)
	if names(st) != "users views" {
		t.Errorf("%q", names(st))
	}

	// A source that another one needs is not removed.
	commit(t, views, plus(nil, "policies/v.rego", rule("views", "x")))
	st = after(t, m, "views", phase(policysource.Compile, "Compile"))
	if s := st.Status["views"]; len(s.Findings) == 0 || s.Findings[0].File != "users/u.rego" || s.Current {
		t.Errorf("%+v", s)
	}
	set(t, m, source("users", users))
	st = await(t, m, "needed", func(st *policysource.State) bool {
		return phase(policysource.Removed, "Needed")(st.Status["views"])
	})
	if names(st) != "users views" || st.Policies["views"].Current {
		t.Errorf("%q, %+v", names(st), st.Status)
	}
	// The need ends by a commit.
	next := commit(t, users, plus(nil, "policies/u.rego", rule("users", "x")))
	if err := m.Sync("users"); err != nil {
		t.Fatal(err)
	}
	active(t, m, "users", next)
	st = await(t, m, "gone", func(st *policysource.State) bool { _, ok := st.Status["views"]; return !ok })
	if names(st) != "users" {
		t.Errorf("%q", names(st))
	}
	set(t, m)
	await(t, m, "all gone", func(st *policysource.State) bool {
		return len(st.Status) == 0 && len(st.Policies) == 0 && len(st.Set.Packages) == 0
	})
}

func TestManager_PackageBelongsToOneSource(t *testing.T) {
	root := t.TempDir()
	a, b := newRepo(t, root, "a"), newRepo(t, root, "b")
	hash := commit(t, a, good("one"))
	other := commit(t, b, good("two"))
	m := start(t, options(), source("a", a))
	active(t, m, "a", hash)
	set(t, m, source("a", a), source("b", b))
	st := await(t, m, "refused", func(st *policysource.State) bool {
		return phase(policysource.Compile, "Compile")(st.Status["b"])
	})
	if s := st.Status["b"]; s.Active != nil || s.Current || !strings.Contains(s.Message, `"a"`) {
		t.Errorf("%+v", s)
	}
	set(t, m, source("b", b))
	if st = active(t, m, "b", other); names(st) != "team" || st.Status["a"].Source != "" {
		t.Errorf("%q, %+v", names(st), st.Status)
	}
}

func TestManager_ManySourcesConcurrently(t *testing.T) {
	root := t.TempDir()
	opts := options()
	opts.MaxConcurrent = 8
	var sources []policysource.Source
	hashes := map[string]string{}
	for i := range 8 {
		name := fmt.Sprintf("s%d", i)
		r := newRepo(t, root, name)
		hashes[name] = commit(t, r, plus(nil, "policies/p.rego", rule(name, "x")))
		sources = append(sources, source(name, r))
	}
	m := start(t, opts, sources...)
	for name, hash := range hashes {
		active(t, m, name, hash)
	}
	if st := m.State(); len(st.Set.Packages) != 8 || st.Generation != 9 {
		t.Errorf("%d packages, generation %d", len(st.Set.Packages), st.Generation)
	}
}

func TestManager_DiffOverMaxDiffIsRejected(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	var width atomic.Int64
	var fails atomic.Bool
	width.Store(100)
	opts := options()
	opts.MinBackoff = time.Hour // fetches are triggered
	opts.Diff = func(_ context.Context, c policysource.Candidate) (policysource.Difference, error) {
		if fails.Load() {
			return policysource.Difference{}, errors.New("scopes are not complete")
		}
		if c.Set == nil || c.Active == nil || c.Commit.Hash == "" || c.Source != "team" {
			t.Errorf("%+v", c)
		}
		n := int(width.Load())
		return policysource.Difference{Appeared: n - 3, Cleared: 1, Changed: 1, Unknown: 1}, nil
	}
	src := source("team", r)
	src.MaxDiff = 10
	m := start(t, opts, src)
	// The first has nothing to be compared with: it is reported without a limit.
	if s := active(t, m, "team", first).Status["team"]; s.Diff == nil || s.Diff.Total() != 100 {
		t.Errorf("%+v", s.Diff)
	}
	second := commit(t, r, good("two"))
	width.Store(11)
	s := after(t, m, "team", phase(policysource.Diff, "TooWide")).Status["team"]
	if s.Active.Hash != first || s.Current || s.Diff.Total() != 11 || !strings.Contains(s.Message, "11 verdicts, but at most 10") {
		t.Errorf("%+v", s)
	}
	fails.Store(true)
	s = after(t, m, "team", phase(policysource.Diff, "NotTold")).Status["team"]
	if s.Active.Hash != first || s.Current || s.Failures != 1 || !strings.Contains(s.Message, "not complete") {
		t.Errorf("%+v", s)
	}
	fails.Store(false)
	width.Store(10) // the fleet has changed
	if err := m.Sync("team"); err != nil {
		t.Fatal(err)
	}
	if s := active(t, m, "team", second).Status["team"]; s.Diff.Total() != 10 || s.Fetches != 2 {
		t.Errorf("%+v", s)
	}
}

// TestManager_ApprovedCommitPassesMaxDiff: the commit that people have approved, and no other.
func TestManager_ApprovedCommitPassesMaxDiff(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	first := commit(t, r, good("one"))
	opts := options()
	opts.MinBackoff = time.Hour // fetches are triggered
	opts.Diff = func(context.Context, policysource.Candidate) (policysource.Difference, error) {
		return policysource.Difference{Appeared: 11}, nil
	}
	var approved atomic.Value
	approved.Store(first)
	opts.Approved = func(source, commit string) bool { return source == "team" && commit == approved.Load() }
	src := source("team", r)
	src.MaxDiff = 10
	m := start(t, opts, src)
	active(t, m, "team", first)
	second := commit(t, r, good("two"))
	after(t, m, "team", phase(policysource.Diff, policysource.ReasonTooWide))
	approved.Store(second)
	if err := m.Sync("team"); err != nil {
		t.Fatal(err)
	}
	if s := active(t, m, "team", second).Status["team"]; s.Diff == nil || s.Diff.Total() != 11 || !s.Current {
		t.Errorf("%+v", s)
	}
	commit(t, r, good("three"))
	if s := after(t, m, "team", phase(policysource.Diff, policysource.ReasonTooWide)).Status["team"]; s.Active.Hash != second {
		t.Errorf("%+v", s)
	}
}

func TestManager_RestoresLastGoodFirst(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	last := commit(t, r, good("one"))
	commit(t, r, plus(good("one"), "policies/broken.rego", "package"))
	src := source("team", r)
	src.LastGood = last
	m := start(t, options(), src)
	st := await(t, m, "restored", func(st *policysource.State) bool {
		return phase(policysource.Compile, "Compile")(st.Status["team"])
	})
	if s := st.Status["team"]; s.Active == nil || s.Active.Hash != last || s.Current || names(st) != "team" {
		t.Errorf("%+v", s)
	}

	// With maxDiff, a new commit is compared with the last good one.
	wide := commit(t, r, good("wide"))
	opts := options()
	opts.Diff = func(_ context.Context, c policysource.Candidate) (policysource.Difference, error) {
		return policysource.Difference{Appeared: 5 * len(c.Active.Packages)}, nil
	}
	src.MaxDiff = 1
	m = start(t, opts, src)
	st = await(t, m, "too wide", func(st *policysource.State) bool { return phase(policysource.Diff, "TooWide")(st.Status["team"]) })
	if s := st.Status["team"]; s.Active.Hash != last || s.Newest.Hash != wide {
		t.Errorf("%+v", s)
	}

	// One that the remote has no more is no obstacle.
	src.LastGood, src.MaxDiff = strings.Repeat("1", 40), 0
	active(t, start(t, options(), src), "team", wide)
}

func TestManager_RetriesTestsThatCannotRun(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	hash := commit(t, r, good("bad"))
	var calls atomic.Int64
	opts := options()
	opts.MinBackoff = time.Millisecond
	opts.Test = func(context.Context, policysource.Candidate) ([]policy.Finding, error) {
		switch calls.Add(1) {
		case 1:
			return nil, errors.New("out of memory")
		case 2:
			panic("a policy that breaks the engine")
		}
		return []policy.Finding{{Code: "note", Severity: policy.SeverityWarning, File: "team/team.rego", Line: 3, Message: "well"}}, nil
	}
	m := start(t, opts, source("team", r))
	st := await(t, m, "panic", func(st *policysource.State) bool { return phase(policysource.Compile, "Panic")(st.Status["team"]) })
	if s := st.Status["team"]; s.Newest == nil || s.Newest.Hash != hash || !strings.Contains(s.Message, "breaks the engine") {
		t.Errorf("%+v", s)
	}
	commit(t, r, good("bad"))
	s := after(t, m, "team", phase(policysource.Active, "Active")).Status["team"]
	if !s.Current || len(s.Findings) == 0 || s.Findings[0].File != "policies/team/team.rego" {
		t.Errorf("%+v", s)
	}
}

func TestManager_WarnsOfMissingTests(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	hash := commit(t, r, plus(nil, "policies/p.rego", rule("p", "x")))
	s := active(t, start(t, options(), source("team", r)), "team", hash).Status["team"]
	found := false
	for _, f := range s.Findings {
		found = found || f.Code == "no-tests"
	}
	if !found {
		t.Errorf("%v", s.Findings)
	}
}
