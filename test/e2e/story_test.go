package e2e

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/assets"
)

// TestStories runs the stories of testdata, each on control planes that nobody
// else uses meanwhile.
func TestStories(t *testing.T) {
	built, err := assets.Ensure(t.Context(), assets.Options{Progress: os.Stderr}, assets.Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	duckdb := buildDuckDB(t)
	t.Cleanup(func() { // what stories leave behind would be in the way of their next run
		if err := shared.stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Cmds:                commands(),
		Setup: func(env *testscript.Env) error {
			hub, err := shared.hub()
			if err != nil {
				return err
			}
			s := newStory(hub, strings.TrimPrefix(filepath.Base(env.WorkDir), "script-"), env.WorkDir, built.Binary(assets.Kubectl))
			s.duckdb = duckdb
			env.Values[storyKey{}] = s
			env.Setenv("NS", s.namespace)
			tb := env.T().(testing.TB)
			env.Defer(func() {
				if s.fed != nil && tb.Failed() {
					tb.Logf("what was logged:\n%s", tail(s.fed.log.String(), 60))
				}
				if err := s.end(); err != nil {
					tb.Error(err)
				}
			})
			return nil
		},
	})
}

type storyKey struct{}

// story is one story under way. One goroutine runs it.
type story struct {
	hub       *kube.Hub
	namespace string // of the hub; members are <namespace>/<name>
	dir       string
	kubectl   string
	duckdb    string // reads what was exported

	clusters map[string]*kube.ControlPlane // by the name that the story uses
	files    map[string]string             // their kubeconfigs around the proxy, for kubectl
	askers   map[string]*rest.Config       // of the query API's users, with their credentials
	joined   map[string]bool
	accounts map[string]bool // that are ServiceAccounts
	fed      *federator      // nil before start
	api      *queries        // nil before the first question
	watches  []func()        // end what watch began
	closers  []func()
}

func newStory(hub *kube.Hub, name, dir, kubectl string) *story {
	return &story{
		hub: hub, namespace: name, dir: dir, kubectl: kubectl,
		clusters: map[string]*kube.ControlPlane{"hub": hub.ControlPlane}, files: map[string]string{}, askers: map[string]*rest.Config{}, joined: map[string]bool{},
	}
}

// end ends what the story has started and gives back what it borrowed.
func (s *story) end() error {
	var errs []error
	for _, f := range s.watches {
		f()
	}
	if s.api != nil {
		if err := s.api.stop(); err != nil {
			errs = append(errs, fmt.Errorf("query API: %w", err))
		}
	}
	if s.fed != nil {
		if err := s.fed.stop(); err != nil {
			errs = append(errs, fmt.Errorf("federator: %w", err))
		}
	}
	for name := range s.joined {
		errs = append(errs, s.hub.Unregister(context.Background(), s.namespace, name))
	}
	for name, c := range s.clusters {
		if name != "hub" {
			errs = append(errs, shared.giveBack(c))
		}
	}
	for _, f := range s.closers {
		f()
	}
	return errors.Join(errs...)
}

// cluster returns the control plane that the story calls by a name, borrowing
// one for a new name.
func (s *story) cluster(name string) (*kube.ControlPlane, error) {
	if c, ok := s.clusters[name]; ok {
		return c, nil
	}
	c, err := shared.borrow()
	if err == nil {
		s.clusters[name] = c
	}
	return c, err
}

func (s *story) member(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return s.namespace + "/" + name
}

// start starts federator with a configuration file of the story, if any.
func (s *story) start(file string) error {
	if s.fed != nil {
		return errors.New("federator runs already")
	}
	var cfg config
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := yaml.UnmarshalStrict(data, &cfg); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	var err error
	find := clusters(s.hub, s.namespace, cfg.Hub)
	if len(cfg.Contexts) > 0 {
		find = contexts(filepath.Join(s.dir, "contexts.yaml"), cfg.Contexts)
	}
	s.fed, err = startFederator(cfg, find)
	return err
}

// redirector is a server that sends everybody elsewhere.
func (s *story) redirector() (url string, ca []byte) {
	srv := httptest.NewTLSServer(http.RedirectHandler("https://127.0.0.1:1/", http.StatusFound))
	s.closers = append(s.closers, srv.Close)
	return srv.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = append([]string{fmt.Sprintf("(%d lines before)", len(lines)-n)}, lines[len(lines)-n:]...)
	}
	return strings.Join(lines, "\n")
}
