package hub_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs. It boots when the first test asks for it.
var shared struct {
	once   sync.Once
	fleet  *kube.Fleet
	http   *http.Client
	client dynamic.Interface
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.fleet != nil {
		if code != 0 {
			shared.fleet.WriteLogs(os.Stderr)
		}
		if shared.http != nil {
			shared.http.CloseIdleConnections()
		}
		if err := shared.fleet.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func boot() error {
	ctx := context.Background()
	var err error
	if shared.fleet, err = kube.Start(ctx, kube.Options{}); err != nil {
		return err
	}
	cfg := hubConfig()
	if shared.http, err = rest.HTTPClientFor(cfg); err != nil {
		return err
	}
	if shared.client, err = dynamic.NewForConfigAndClient(cfg, shared.http); err != nil {
		return err
	}
	for _, name := range []string{v1alpha1.FleetPolicies, v1alpha1.PolicySources, v1alpha1.Actions} {
		text, err := os.ReadFile(filepath.Join("..", "..", "charts", "federator", "crds", "federator.dev_"+name+".yaml"))
		if err != nil {
			return err
		}
		if err := shared.fleet.Hub.Apply(ctx, text); err != nil {
			return err
		}
		if err := until(func() error {
			_, err := shared.client.Resource(v1alpha1.Resource(name)).List(ctx, metav1.ListOptions{})
			return err
		}); err != nil {
			return fmt.Errorf("%s are not served: %w", name, err)
		}
	}
	return nil
}

func hubConfig() *rest.Config {
	cfg := shared.fleet.Hub.DirectRESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg
}

// until polls until a check passes, and returns its last error when time is up.
func until(check func() error) error {
	deadline := time.NewTimer(90 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-deadline.C:
			return err
		case <-tick.C:
		}
	}
}

// realHub returns the hub, where all kinds are served.
func realHub(t *testing.T) *kube.Hub {
	t.Helper()
	shared.once.Do(func() { shared.err = boot() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.fleet.Hub
}
