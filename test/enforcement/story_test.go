package enforcement

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/git"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/otlp"
)

// TestStories runs the stories of testdata.
func TestStories(t *testing.T) {
	if err := shared.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireUniqueNames: true, RequireExplicitExec: true, Cmds: commands(),
		Setup: func(env *testscript.Env) error {
			tb, ok := env.T().(testing.TB)
			if !ok {
				return fmt.Errorf("%T is no test", env.T())
			}
			l := <-shared.testbeds
			s := &story{testbed: l, dir: env.WorkDir, in: newInbox(), clusters: map[string]*kube.ControlPlane{}, kubeconfigs: map[string]string{}, processes: map[string]*server{}}
			env.Defer(func() {
				if tb.Failed() {
					for name, p := range s.processes {
						tb.Logf("%s logged:\n%s", name, p.Tail(80))
					}
				}
				if err := s.end(context.Background()); err != nil {
					tb.Error(err)
				}
				shared.testbeds <- l
			})
			env.Values[storyKey{}] = s
			return s.start(tb.Context(), env)
		},
	})
}

type storyKey struct{}

// story is a running story. One goroutine runs it.
type story struct {
	*testbed
	dir  string
	repo *git.Repo
	in   *inbox
	// remote serves the repository, behind a network that can fail; nil before command git.
	remote *remote

	clusters    map[string]*kube.ControlPlane // by the name that the story uses
	kubeconfigs map[string]string             // around the proxy, by the same
	joined      []string
	processes   map[string]*server
	events      map[string]int // how many of a member's audit log were there before
	syncs       int
	receiver    *otlp.Receiver // of traces; nil before command traced
	traces      string         // as the configuration has them
	closers     []func()
	signers     map[string]*openpgp.Entity
	clock       time.Time
}

// start creates what every story has.
func (s *story) start(ctx context.Context, env *testscript.Env) (err error) {
	if err := s.testbed.start(ctx); err != nil {
		return err
	}
	s.clusters["hub"], s.events = s.fleet.Hub.ControlPlane, map[string]int{}
	before, err := s.fleet.Hub.Audit()
	if err != nil {
		return err
	}
	s.events["hub"] = len(before)
	hub, err := s.kubeconfig(ctx, "hub")
	if err != nil {
		return err
	}
	root := filepath.Join("testdata", "files")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		at := filepath.Join(s.dir, rel)
		if _, err := os.Stat(at); err == nil {
			return nil // the story's own
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, text, 0o600))
	})
	if err != nil {
		return err
	}
	if s.repo, err = git.Init(filepath.Join(s.dir, "git", "policies")); err != nil {
		return err
	}
	env.Setenv("PATH", filepath.Join(shared.dir, "bin")+string(os.PathListSeparator)+env.Getenv("PATH"))
	env.Setenv("KUBECONFIG", hub)
	env.Setenv("KUBECACHEDIR", filepath.Join(shared.dir, "kubectl"))
	env.Setenv("REPO", "file://"+s.repo.Dir)
	env.Setenv("INBOX", s.in.URL)
	env.Setenv("INBOX_KEY", base64.StdEncoding.EncodeToString([]byte(inboxKey)))
	env.Setenv("INBOX_CA", base64.StdEncoding.EncodeToString(s.in.ca()))
	return nil
}

// end stops what the story has started and returns its testbed.
func (s *story) end(ctx context.Context) error {
	var errs []error
	for name, p := range s.processes {
		if err := p.stop(); err != nil {
			errs = append(errs, fmt.Errorf("federator %s: %w", name, err))
		}
	}
	s.in.Close()
	if _, err := s.in.told(); err != nil {
		errs = append(errs, fmt.Errorf("notices: %w", err))
	}
	if s.remote != nil {
		errs = append(errs, s.remote.close())
	}
	for _, f := range s.closers {
		f()
	}
	if s.fleet == nil {
		return errors.Join(errs...)
	}
	for _, name := range s.joined {
		errs = append(errs, s.fleet.Hub.Unregister(ctx, "fleet", name))
	}
	for name, c := range s.clusters {
		if name != "hub" {
			errs = append(errs, s.restore(ctx, c))
		}
	}
	return errors.Join(append(errs, deleteCollections(ctx, s.fleet.Hub.ControlPlane, onTheHub))...)
}

// cluster returns the control plane with a name in the story.
func (s *story) cluster(ctx context.Context, name string) (*kube.ControlPlane, error) {
	if c, ok := s.clusters[name]; ok {
		return c, nil
	}
	c, err := s.member(ctx)
	if c != nil {
		s.clusters[name] = c
	}
	if err != nil {
		return nil, err
	}
	before, err := c.Audit()
	s.events[name] = len(before)
	return c, err
}

// kubeconfig returns a file with an administrator's access around the proxy.
func (s *story) kubeconfig(ctx context.Context, name string) (string, error) {
	if file, ok := s.kubeconfigs[name]; ok {
		return file, nil
	}
	c, err := s.cluster(ctx, name)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.Load(c.Kubeconfig())
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = c.DirectRESTConfig().Host
	}
	file := filepath.Join(s.dir, name+".kubeconfig")
	s.kubeconfigs[name] = file
	return file, clientcmd.WriteToFile(*config, file)
}

// process returns the federator of a name.
func (s *story) process(name string) (*server, error) {
	if p, ok := s.processes[name]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("federator %s has not been started", name)
}

// unregister deletes a Cluster and its Secret.
func (s *story) unregister(ctx context.Context, name string) error {
	for i, j := range s.joined {
		if j == name {
			s.joined = append(s.joined[:i], s.joined[i+1:]...)
			return s.fleet.Hub.Unregister(ctx, "fleet", name)
		}
	}
	return fmt.Errorf("%s has not joined: %s have", name, strings.Join(s.joined, ", "))
}
