package main

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_PrintsUsableKubeconfigsAndCleansUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, config{members: 1, workloads: 1, namespace: "fleet"}, w, io.Discard)
		_ = w.CloseWithError(err)
		done <- err
	}()
	var out strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(out.String(), "Ctrl-C") {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, out.String())
		}
		out.Write(buf[:n])
	}
	paths := regexp.MustCompile(`(?m)^(hub|member-1)\s+(-|fleet/member-1)\s+(/\S+)$`).FindAllStringSubmatch(out.String(), -1)
	if len(paths) != 2 {
		t.Fatalf("printed %q", out.String())
	}
	for _, p := range paths {
		if _, err := clientcmd.LoadFromFile(p[3]); err != nil {
			t.Errorf("%s: %v", p[1], err)
		}
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the fleet did not stop")
	}
	if _, err := os.Stat(paths[0][3]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("kubeconfig after the end: %v, want it gone", err)
	}
}
