package agents

import (
	"context"
	"net/http"
	"os"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs.
var shared struct {
	kube.Shared
	client dynamic.Interface
}

func TestMain(m *testing.M) {
	shared.Prepare = func(ctx context.Context) error {
		cfg := shared.Fleet.Hub.DirectRESTConfig()
		cfg.WarningHandler = rest.NoWarnings{}
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return err
		}
		shared.Clients = []*http.Client{client}
		if shared.client, err = dynamic.NewForConfigAndClient(cfg, client); err != nil {
			return err
		}
		return shared.Fleet.Hub.InstallCRDs(ctx, "../../charts/federator/crds")
	}
	os.Exit(shared.Main(m))
}
