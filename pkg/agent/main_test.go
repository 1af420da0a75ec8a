package agent_test

import (
	"context"
	"os"
	"testing"

	"k8s.io/client-go/dynamic"

	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs, and one member.
var shared struct {
	kube.Shared
	client dynamic.Interface
}

func TestMain(m *testing.M) {
	shared.Options = kube.Options{Members: 1}
	shared.Prepare = prepare
	os.Exit(shared.Main(m))
}

func prepare(ctx context.Context) (err error) {
	shared.client, err = shared.InstallCRDs(ctx, "../../charts/federator/crds")
	return err
}
