package policysource_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/test/git"
)

func TestManager_InvalidSourcesSayWhy(t *testing.T) {
	r := newRepo(t, t.TempDir(), "r")
	hash := commit(t, r, good("bad"))
	m := start(t, options(), source("team", r))
	active(t, m, "team", hash)
	for name, c := range map[string]struct {
		change func(*policysource.Source)
		text   string
	}{
		"interval": {func(s *policysource.Source) { s.Interval = time.Second }, "interval"},
		"no URL":   {func(s *policysource.Source) { s.URL = "" }, "URL"},
		"password": {func(s *policysource.Source) { s.URL = "https://ann:secret@example.com/r" }, "credentials"},
		"path":     {func(s *policysource.Source) { s.Path = "../x" }, "relative path"},
		"ref":      {func(s *policysource.Source) { s.Ref = "a b" }, "valid ref name"},
		"limit":    {func(s *policysource.Source) { s.Limits.Files = -1 }, "files is negative"},
		"keys":     {func(s *policysource.Source) { s.Verify.PGP = []byte("x") }, "trusted keys"},
		"maxDiff":  {func(s *policysource.Source) { s.MaxDiff = 1 }, "cannot be compared here"},
		"fault":    {func(s *policysource.Source) { s.Problem = "no such Secret" }, "no such Secret"},
		"negative": {func(s *policysource.Source) { s.MaxDiff = -1 }, "negative"},
	} {
		src := source("team", r)
		src.Generation = 7
		c.change(&src)
		set(t, m, src)
		st := await(t, m, name, func(st *policysource.State) bool {
			return phase(policysource.Invalid, "Invalid")(st.Status["team"]) && strings.Contains(st.Status["team"].Message, c.text)
		})
		s := st.Status["team"]
		if s.Active == nil || s.Active.Hash != hash || s.Current || s.Generation != 7 || strings.Contains(s.Message, "secret") || names(st) != "team" {
			t.Errorf("%s: %+v", name, s)
		}
		if err := m.Sync("team"); !errors.Is(err, policysource.ErrUnknownSource) {
			t.Errorf("%s: sync: %v", name, err)
		}
	}
	set(t, m, source("team", r))
	active(t, m, "team", hash)

	for _, bad := range [][]policysource.Source{
		{source("team", r), source("team", r)}, {source("", r)}, {source("a/b", r)}, {source("A", r)}, {source(strings.Repeat("a", 64), r)},
	} {
		if err := m.SetSources(bad); !errors.Is(err, policysource.ErrInvalidName) {
			t.Errorf("%v", err)
		}
	}
}

func TestManager_AnotherURLIsNotCurrentUntilActive(t *testing.T) {
	root := t.TempDir()
	a, b := newRepo(t, root, "a"), newRepo(t, root, "b")
	hash := commit(t, a, good("one"))
	m := start(t, options(), source("team", a))
	active(t, m, "team", hash)
	moved := source("team", a)
	moved.URL = "file://" + b.Dir
	set(t, m, moved)
	st := await(t, m, "moved", func(st *policysource.State) bool { return phase(policysource.Content, "Emptied")(st.Status["team"]) })
	if s := st.Status["team"]; s.Active.Hash != hash || s.Current {
		t.Errorf("%+v", s)
	}
}

func TestNewManager_ValidatesOptions(t *testing.T) {
	for name, o := range map[string]policysource.Options{
		"parallel": {MaxConcurrent: -1},
		"backoff":  {MinBackoff: time.Minute, MaxBackoff: time.Second},
		"negative": {MinBackoff: -1},
		"nameless": {Base: []policy.Source{{}}},
		"base":     {Base: []policy.Source{{Name: "b", Files: []policy.File{{Path: "b.rego", Data: []byte("package")}}}}},
	} {
		if _, err := policysource.NewManager(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	opts := options()
	opts.Base = []policy.Source{{Name: "base"}}
	m, err := policysource.NewManager(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetSources([]policysource.Source{{Name: "base"}}); !errors.Is(err, policysource.ErrInvalidName) {
		t.Errorf("a name of the base: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := m.Run(ctx); err == nil {
		t.Error("Run ran twice")
	}
}

func TestManager_RunEndsWhileRemotesHang(t *testing.T) {
	root := t.TempDir()
	r := newRepo(t, root, "r")
	hash := commit(t, r, good("bad"))
	web, err := git.ServeHTTPS(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	requested := make(chan struct{}, 10)
	web.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		requested <- struct{}{}
		<-r.Context().Done()
		return true
	})
	hanging, waiting := source("hanging", r), source("waiting", r)
	hanging.URL, hanging.Auth.CA = web.URL+"/r", web.CA
	waiting.URL, waiting.Auth.CA = hanging.URL, web.CA
	opts := options()
	opts.MaxConcurrent = 1
	m, err := policysource.NewManager(opts)
	if err != nil {
		t.Fatal(err)
	}
	set(t, m, hanging, waiting)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	<-requested
	// What hangs is replaced at once.
	web.Intercept(nil)
	waiting.Interval = 2 * time.Hour
	set(t, m, source("hanging", r), waiting)
	await(t, m, "both", func(st *policysource.State) bool {
		a, b := st.Status["hanging"], st.Status["waiting"]
		if b.Phase == policysource.Active {
			a, b = b, a
		}
		return a.Current && a.Active.Hash == hash && b.Phase == policysource.Compile // the same package
	})
	web.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		requested <- struct{}{}
		<-r.Context().Done()
		return true
	})
	if err := m.Sync("waiting"); err != nil {
		t.Fatal(err)
	}
	<-requested
	before := m.State()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if st := m.State(); st != before {
		t.Errorf("an end is no failure: %+v", st.Status)
	}
}
