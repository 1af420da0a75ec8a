package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"federator.dev/federator/internal/execplugin"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/test/clitest"
)

// asBinary in the environment makes this binary the command.
const asBinary = "FEDERATOR_TEST_AS_BINARY"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == execplugin.Name || os.Getenv(asBinary) != "") { // as the binary that it stands for
		root, args := commandOf(os.Args)
		if err := clitest.Execute(context.Background(), root, os.Stdout, os.Stderr, args...); err != nil {
			fmt.Fprintln(os.Stderr, root.DisplayName()+":", err)
			os.Exit(exit.Code(err))
		}
		os.Exit(0)
	}
	clitest.Main(m)
}

// command runs federator in this process and returns what it printed.
func command(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	return clitest.Run(t, newCommand(), args...)
}

func execute(ctx context.Context, out, errOut io.Writer, args ...string) error {
	return clitest.Execute(ctx, newCommand(), out, errOut, args...)
}
