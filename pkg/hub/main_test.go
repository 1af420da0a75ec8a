package hub_test

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs.
var shared struct {
	kube.Shared
	http   *http.Client
	client dynamic.Interface
}

func TestMain(m *testing.M) {
	shared.Prepare = prepare
	os.Exit(shared.Main(m))
}

func prepare(ctx context.Context) (err error) {
	cfg := hubConfig()
	if shared.http, err = rest.HTTPClientFor(cfg); err != nil {
		return err
	}
	shared.Clients = []*http.Client{shared.http}
	if shared.client, err = dynamic.NewForConfigAndClient(cfg, shared.http); err != nil {
		return err
	}
	return shared.Fleet.Hub.InstallCRDs(ctx, "../../charts/federator/crds")
}

func hubConfig() *rest.Config {
	cfg := shared.Fleet.Hub.DirectRESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg
}

// until polls until a check passes, and returns its last error when time is up.
func until(check func() error) error { return kube.Until(context.Background(), 90*time.Second, check) }

// realHub returns the hub, where all kinds are served.
func realHub(t *testing.T) *kube.Hub {
	t.Helper()
	return shared.Start(t).Hub
}
