package agents

import (
	"context"
	"os"
	"testing"

	"k8s.io/client-go/dynamic"

	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs.
var shared struct {
	kube.Shared
	client dynamic.Interface
}

func TestMain(m *testing.M) {
	shared.Prepare = func(ctx context.Context) (err error) {
		shared.client, err = shared.InstallCRDs(ctx, "../../charts/federator/crds")
		return err
	}
	os.Exit(shared.Main(m))
}
