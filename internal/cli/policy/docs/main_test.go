package docs

import (
	"testing"

	"federator.dev/federator/test/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// command runs federator in this process and returns what it printed.
func command(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	return clitest.Run(t, clitest.Root(Command()), args...)
}
