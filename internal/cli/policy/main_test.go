package policy

import (
	"context"
	"io"
	"testing"

	"federator.dev/federator/internal/cli/snapshot"
	"federator.dev/federator/test/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// command runs federator in this process and returns what it printed.
func command(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	return clitest.Run(t, clitest.Root(Command("devel"), snapshot.Command("devel")), args...)
}

func execute(ctx context.Context, out, errOut io.Writer, args ...string) error {
	return clitest.Execute(ctx, clitest.Root(Command("devel"), snapshot.Command("devel")), out, errOut, args...)
}
