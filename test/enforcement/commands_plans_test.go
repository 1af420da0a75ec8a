package enforcement

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// planCommands are commands about Plans of many targets.
var planCommands = map[string]command{
	// crowd creates N managed ConfigMaps in namespace shop, PREFIX-0 and so on.
	"crowd": {"NAME PREFIX N [LABEL=VALUE...]", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		c, err := s.cluster(ctx, args[0])
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		labels := map[string]string{"managed": "yes"}
		for _, l := range args[3:] {
			key, value, _ := strings.Cut(l, "=")
			labels[key] = value
		}
		var all errgroup.Group
		all.SetLimit(8)
		for i := range n {
			all.Go(func() error {
				_, err := c.Client().CoreV1().ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", args[1], i), Labels: labels},
				}, metav1.CreateOptions{})
				return err
			})
		}
		return all.Wait()
	}},
	// reader writes reader.kubeconfig, with which ServiceAccount reader of namespace federator
	// reaches the query API of PROCESS.
	"reader": {"PROCESS", func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) error {
		p, err := s.process(args[0])
		if err != nil {
			return err
		}
		address, err := p.Address("query")
		if err != nil {
			return err
		}
		hub, err := s.kubeconfig(ctx, "hub")
		if err != nil {
			return err
		}
		text, err := s.exec(ctx, "federator", nil, "kubeconfig", "--server", "https://"+address, "--hub-kubeconfig", hub,
			"--certificate-authority", filepath.Join(shared.dir, "tls.crt"), "--service-account", "federator/reader")
		if err != nil {
			return err
		}
		return os.WriteFile(ts.MkAbs("reader.kubeconfig"), []byte(text), 0o600)
	}},
	// clock begins to measure.
	"clock": {"", func(_ context.Context, s *story, _ *testscript.TestScript, _ []string) error {
		s.clock = time.Now()
		return nil
	}},
}

// planViews are views about Plans of many targets, and of the query API.
var planViews = map[string]view{
	// query shows the response of the query API to a request of the reader.
	"query": {"PATH", func(ctx context.Context, s *story, ts *testscript.TestScript, args []string) (string, error) {
		return s.exec(ctx, "kubectl", []string{"KUBECACHEDIR=" + filepath.Join(shared.dir, "kubectl")}, "--kubeconfig", ts.MkAbs("reader.kubeconfig"), "get", "--raw", args[0])
	}},
	// elapsed shows the time since command clock.
	"elapsed": {"", func(_ context.Context, s *story, _ *testscript.TestScript, _ []string) (string, error) {
		return time.Since(s.clock).Round(100 * time.Millisecond).String(), nil
	}},
	// hubwrites shows how often federator has written to resources of the hub in this story,
	// leases and dry runs aside.
	"hubwrites": {"", func(_ context.Context, s *story, _ *testscript.TestScript, _ []string) (string, error) {
		events, err := s.fleet.Hub.Audit()
		if err != nil {
			return "", err
		}
		counts := map[string]int{}
		for _, e := range events[s.events["hub"]:] {
			if strings.HasPrefix(e.UserAgent, "federator") && e.ObjectRef.Resource != "leases" && !strings.Contains(e.RequestURI, "dryRun=All") {
				counts[strings.TrimSuffix(e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")]++
			}
		}
		var out strings.Builder
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintln(&out, counts[what], what)
		}
		return out.String(), nil
	}},
}
