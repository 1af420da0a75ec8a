package clitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"federator.dev/federator/internal/execplugin"
	"federator.dev/federator/internal/exit"
)

// Main runs the tests of a package that runs commands: with a configuration directory
// of their own, and held to leave no goroutine.
func Main(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == execplugin.Name { // contexts with exec plugins run it in this binary
		if err := Execute(context.Background(), Root(execplugin.Command()), os.Stdout, os.Stderr, os.Args[1:]...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exit.Code(err))
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

// Root returns a federator that has some commands only.
func Root(commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{Use: "federator", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(commands...)
	return root
}

// Execute runs a command line.
func Execute(ctx context.Context, root *cobra.Command, out, errOut io.Writer, args ...string) error {
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	return root.ExecuteContext(ctx)
}

// Run runs a command line and returns what it printed.
func Run(t *testing.T, root *cobra.Command, args ...string) (stdout string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	err = Execute(t.Context(), root, &out, &errOut, args...)
	if errOut.Len() > 0 {
		t.Logf("federator %s: standard error:\n%s", strings.Join(args, " "), &errOut)
	}
	return out.String(), err
}
