package assets_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"federator.dev/federator/test/kube/assets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// syncBuffer is written by several builds at once.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestEnsure_BuildsOnceForConcurrentCallers(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	dir := t.TempDir()
	// What an interrupted build left goes.
	abandoned := filepath.Join(dir, ".build-interrupted")
	if err := os.Mkdir(abandoned, 0o755); err != nil {
		t.Fatal(err)
	}
	var progress syncBuffer
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			a, err := assets.Ensure(t.Context(), assets.Options{Dir: dir, Progress: &progress}, assets.Etcd)
			if err != nil {
				t.Error(err)
				return
			}
			if got, want := a.Binary(assets.Etcd), filepath.Join(dir, "etcd"); got != want {
				t.Errorf("etcd at %s, want %s", got, want)
			}
		})
	}
	wg.Wait()
	if n := strings.Count(progress.String(), "etcd: built in"); n != 1 {
		t.Errorf("built %d times:\n%s", n, progress.String())
	}
	out, err := exec.Command(filepath.Join(dir, "etcd"), "--version").Output()
	if err != nil || !strings.Contains(string(out), "etcd Version: 3.6.8") {
		t.Errorf("etcd --version: %s, %v", out, err)
	}
	for _, file := range []string{"crds/cluster.x-k8s.io_clusters.yaml", "stages/pod-ready.yaml", "stages/node-initialize.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(abandoned); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("abandoned build: %v, want it gone", err)
	}
}

func TestEnsure_UsesKubebuilderAssets(t *testing.T) {
	given := t.TempDir()
	etcd := filepath.Join(given, "etcd")
	if err := os.WriteFile(etcd, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEBUILDER_ASSETS", given)
	var progress syncBuffer
	a, err := assets.Ensure(t.Context(), assets.Options{Dir: t.TempDir(), Progress: &progress}, assets.Etcd)
	if err != nil {
		t.Fatal(err)
	}
	if a.Binary(assets.Etcd) != etcd || progress.String() != "" {
		t.Errorf("etcd at %s, want %s; progress %q", a.Binary(assets.Etcd), etcd, progress.String())
	}
}

func TestEnsure_RejectsUnknownBinaries(t *testing.T) {
	if _, err := assets.Ensure(t.Context(), assets.Options{Dir: t.TempDir()}, "kubelet"); err == nil {
		t.Error("Ensure built a kubelet")
	}
}

func TestEnsure_StopsWithContext(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := assets.Ensure(ctx, assets.Options{Dir: dir}, assets.Etcd); !errors.Is(err, context.Canceled) {
		t.Errorf("Ensure: %v, want canceled", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "etcd")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("etcd after a canceled build: %v", err)
	}
}
