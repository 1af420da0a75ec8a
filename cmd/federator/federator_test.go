package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"federator.dev/federator/test/sim"
)

// asBinary in the environment makes this binary the command.
const asBinary = "FEDERATOR_TEST_AS_BINARY"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == pluginCommand || os.Getenv(asBinary) != "") { // as the binary that it stands for
		if err := execute(context.Background(), os.Stdout, os.Stderr, os.Args[1:]...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitCode(err))
		}
		os.Exit(0)
	}
	// klog flushes files that it never opens from a goroutine of its own.
	klog.StopFlushDaemon()
	// Servers without a hub keep files there.
	dir, err := os.MkdirTemp("", "federator")
	if err == nil {
		err = os.Setenv("XDG_CONFIG_HOME", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// command runs federator in this process and returns what it printed.
func command(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	err = execute(t.Context(), &out, &errOut, args...)
	if errOut.Len() > 0 {
		t.Logf("federator %s: standard error:\n%s", strings.Join(args, " "), &errOut)
	}
	return out.String(), err
}

func execute(ctx context.Context, out, errOut io.Writer, args ...string) error {
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	return cmd.ExecuteContext(ctx)
}

// fleetOf starts simulated members and returns them with a kubeconfig of a
// context for each.
func fleetOf(t *testing.T, n int) (members []*sim.Member, kubeconfig string) {
	t.Helper()
	f, err := sim.New(sim.Options{Members: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	config := clientcmdapi.NewConfig()
	for _, m := range f.Members() {
		m.AddTo(config)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return f.Members(), kubeconfig
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// eventually waits until f succeeds.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	err := f()
	for ; err != nil; err = f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// lines collects log output that is written while it is read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var errNotYet = errors.New("not yet")
