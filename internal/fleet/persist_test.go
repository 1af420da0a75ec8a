package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/sim"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// serve runs a fleet that is kept in a directory, and returns it with what ends it.
func serve(t *testing.T, cfg config.Config, revisions uint64) (f *fleet.Fleet, end func()) {
	t.Helper()
	f, err := fleet.New(cfg, fleet.Options{Revisions: aggregate.Block(revisions), UserAgent: "test", Logger: slog.New(slog.DiscardHandler), Persist: true})
	if err != nil {
		t.Fatal(err)
	}
	f.Load(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{f.Manager.Run, f.Keep} {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(end)
	return f, end
}

// damage changes a byte of every file of a member.
func damage(t *testing.T, dir string) {
	t.Helper()
	damaged := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Dir(path) == dir || !strings.HasSuffix(path, ".log") && !strings.HasSuffix(path, ".segment") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			return err
		}
		data[len(data)/2] ^= 1
		damaged++
		return os.WriteFile(path, data, 0o600)
	})
	if err != nil || damaged == 0 {
		t.Fatalf("%d files damaged: %v", damaged, err)
	}
}

// TestFleet_AnswersOnceWhatWasLostIsReadAgain: a list without what damaged files had would say that it is
// deleted. A member that does not answer holds nothing up for good.
func TestFleet_AnswersOnceWhatWasLostIsReadAgain(t *testing.T) {
	members, kubeconfig := clitest.Fleet(t, 1)
	clitest.CreateConfigMaps(t, members[0], "a", "b", "c")
	cfg := config.Default()
	cfg.Sources.Contexts = &config.Contexts{Path: kubeconfig, Names: []string{"*"}}
	cfg.Kinds = []clusterinformers.KindRule{{Kind: "ConfigMap"}}
	cfg.Persistence.Directory = t.TempDir()
	held := func(f *fleet.Fleet) error {
		n, err := f.Index.Snapshot().Count(aggregate.Query{Kind: "ConfigMap"})
		if err != nil || n != 3 || f.Loading() {
			return fmt.Errorf("%d ConfigMaps are held, loading: %t, %w", n, f.Loading(), err)
		}
		return nil
	}
	f, end := serve(t, cfg, 1)
	clitest.Eventually(t, "all is held", func() error { return held(f) })
	end()

	f, end = serve(t, cfg, 2)
	if err := held(f); err != nil {
		t.Errorf("what was kept is not there at once: %v", err)
	}
	end()

	damage(t, cfg.Persistence.Directory)
	clear := members[0].Faults().Add(sim.Fault{Kind: schema.GroupResource{Resource: "configmaps"}, Status: http.StatusServiceUnavailable})
	f, end = serve(t, cfg, 3)
	clitest.Eventually(t, "the member is known", func() error {
		if !f.Manager.Known() {
			return errors.New("it is not")
		}
		return nil
	})
	if !f.Loading() {
		t.Error("lists are answered without what was lost")
	}
	clear()
	clitest.Eventually(t, "what was lost is read again", func() error { return held(f) })
	end()

	damage(t, cfg.Persistence.Directory)
	members[0].Cut()
	cfg.GiveUpAfter = time.Second
	f, end = serve(t, cfg, 4)
	defer end()
	clitest.Eventually(t, "the member is given up", func() error {
		if f.Loading() {
			return errors.New("it is not")
		}
		return nil
	})
}
