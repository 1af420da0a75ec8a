package kubeconfig

import (
	"testing"

	"federator.dev/federator/test/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }
