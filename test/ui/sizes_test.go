package ui

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/charts"
	"federator.dev/federator/test/kube"
)

// TestSizes plays the stories of a hub that has no member, and then MEMBERS simulated ones, 1,000 if
// that is not set, with labels and with names as long as a hub lets them be. With HOLD=FILE the latter
// stay.
func TestSizes(t *testing.T) {
	if os.Getenv("UI") != "full" { // CI has not the time
		t.Skip("make ui-stories plays stories of no member and of 1,000")
	}
	found := require(t)
	f := &fleet{t: t, dir: t.TempDir(), address: kube.FreeAddress(t)}
	f.startIssuer()
	f.clusters = kube.StartTest(t, kube.Options{})
	f.binary = build(t)
	ctx, hub, files := t.Context(), f.clusters.Hub, filepath.Join(root(t), "test/demo/files")
	policies, err := charts.Admission("kubernetes-admin") // as whom federator runs here
	if err == nil {
		err = hub.InstallCRDs(ctx, filepath.Join(root(t), "charts/federator/crds"))
	}
	if err != nil {
		t.Fatal(err)
	}
	policies["hub"] = string(read(t, files, "hub.yaml"))
	for _, m := range policies {
		if err := hub.Apply(ctx, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	f.configure()
	f.serve()
	t.Cleanup(f.stop)
	of := world{URL: f.url(), Driver: f.drive(), Screenshots: os.Getenv("UI_SCREENSHOTS")}
	play(t, found, "empty", of)

	of.Members = number(t, "MEMBERS", 1000)
	f.registerSimulated(startMembers(t, t.TempDir(), of.Members, 5, 0, "--kinds=12", "--nodes=1"))
	if err := hub.Apply(ctx, read(t, files, "library.yaml")); err != nil {
		t.Fatal(err)
	}
	if file := os.Getenv("HOLD"); file != "" {
		hold(t, file, of)
		return
	}
	play(t, found, "large", of)
}

// registerSimulated registers each context of a kubeconfig as a member.
func (f *fleet) registerSimulated(kubeconfig string) {
	f.t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		f.t.Fatal(err)
	}
	group, ctx := errgroup.WithContext(f.t.Context())
	group.SetLimit(8)
	for n, name := range slices.Sorted(maps.Keys(config.Contexts)) {
		group.Go(func() error { return f.registerOne(ctx, config, name, n) })
	}
	if err := group.Wait(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) registerOne(ctx context.Context, config *clientcmdapi.Config, name string, n int) error {
	one := clientcmdapi.NewConfig()
	one.Clusters[name], one.AuthInfos[name], one.Contexts[name], one.CurrentContext = config.Clusters[name], config.AuthInfos[name], config.Contexts[name], name
	text, err := clientcmd.Write(*one)
	if err != nil {
		return err
	}
	region := []string{"eu-west-1", "eu-north-1", "us-east-1", "us-west-2", "ap-northeast-1", "ap-southeast-2", "sa-east-1"}[n%7]
	cluster := kube.Cluster{Namespace: "fleet", Name: fmt.Sprintf("%s-%d", region, n), Kubeconfig: text, Labels: map[string]string{
		"region": region, "tier": []string{"critical", "standard", "standard", "edge"}[n%4],
	}}
	if n%40 == 0 {
		long := cluster.Name + "-" + strings.Repeat("payments-and-settlement-", 3)
		cluster.Name = strings.TrimSuffix(long[:63], "-")
	}
	if n%10 == 3 {
		delete(cluster.Labels, "tier")
	}
	return f.clusters.Hub.Register(ctx, cluster)
}
