package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/git"
	"federator.dev/federator/test/kube"
)

// tierRego wants a label, and knows how to set it.
const tierRego = `# METADATA
# title: Managed ConfigMaps have a tier
# description: A ConfigMap with label managed has label tier.
# custom:
#   severity: medium
#   kinds: [ConfigMap]
#   remedies: [{action: patch, kind: ConfigMap}]
package bench.tier

violation contains {
	"msg": "no tier",
	"remedy": {"action": "patch", "patch": {"metadata": {"labels": {"tier": "gold"}}}},
} if {
	input.object.metadata.labels.managed
	not input.object.metadata.labels.tier == "gold"
}
`

const tierRegoTest = `package bench.tier_test

import data.bench.tier

test_no_tier if {
	count(tier.violation) == 1 with input as {"object": {"metadata": {"labels": {"managed": "yes"}}}}
}
`

const correctHub = `apiVersion: v1
kind: Namespace
metadata: {name: federator}
---
apiVersion: federator.dev/v1alpha1
kind: PolicySource
metadata: {name: bench}
spec:
  url: file://%s
  ceiling: {maxMode: Enforce, actions: [{verbs: [patch], kinds: [ConfigMap]}]}
---
apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: tier}
spec:
  package: bench.tier
  mode: Enforce
  limits: {maxAffected: {policy: {count: 100000}}}
`

// corrections measures from the answer to a write that drifts to the moment that a
// watch on the member sees it corrected: by federator as it is run, on real API servers,
// with the shipped policies beside the one that corrects.
func corrections(ctx context.Context, b *bench) (rows []row, err error) {
	fleet, err := kube.Start(ctx, kube.Options{Members: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fleet.Stop()) }()
	observed, err := b.setUpCorrections(ctx, fleet)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	binary, err := b.buildFederator(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	server, err := b.serveCorrections(ctx, fleet, binary)
	if err != nil {
		cancel()
		return nil, err
	}
	defer func() { cancel(); _ = server.Wait() }() // it was canceled
	client, err := kubernetes.NewForConfig(fleet.Members[0].DirectRESTConfig())
	if err != nil {
		return nil, err
	}
	drifts := b.n(300)
	late, bare, err := drift(ctx, client, "drift", drifts)
	if err != nil {
		return nil, err
	}
	if err := awaitEvaluations(ctx, fleet, observed+1); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d drifts, one after the other, %d policies; p50 %.0f ms; dry run, Action on the hub and write included; baseline: one patch request, p50 %.1f ms; goal under 250", drifts, observed+1, ms(late, 0.5), ms(bare, 0.5))
	return []row{lower("remediate/drift_to_corrected_p99", "ms", ms(late, 0.99), ms(bare, 0.99), note)}, nil
}

// setUpCorrections prepares a hub with a Cluster, policies in git, and FleetPolicies
// that observe what is shipped. It returns how many these are.
func (b *bench) setUpCorrections(ctx context.Context, fleet *kube.Fleet) (observed int, err error) {
	dir, err := os.MkdirTemp(b.dir, "policies-")
	if err != nil {
		return 0, err
	}
	repo, err := git.Init(dir)
	if err != nil {
		return 0, err
	}
	if _, err := repo.Commit(map[string]string{"tier.rego": tierRego, "tier_test.rego": tierRegoTest}); err != nil {
		return 0, err
	}
	if err := fleet.Hub.InstallCRDs(ctx, "charts/federator/crds"); err != nil {
		return 0, err
	}
	if err := fleet.Hub.Register(ctx, kube.Cluster{Namespace: "fleet", Name: "eu-1", Kubeconfig: fleet.Members[0].Kubeconfig()}); err != nil {
		return 0, err
	}
	_, bindings, err := shippedTwenty()
	if err != nil {
		return 0, err
	}
	manifests := fmt.Appendf(nil, correctHub, repo.Dir)
	for _, shipped := range bindings {
		text, err := json.Marshal(map[string]any{
			"apiVersion": "federator.dev/v1alpha1", "kind": "FleetPolicy", "metadata": map[string]any{"name": strings.NewReplacer(".", "-", "_", "-").Replace(shipped.Package)},
			"spec": map[string]any{"package": shipped.Package, "parameters": shipped.Parameters},
		})
		if err != nil {
			return 0, err
		}
		manifests = append(append(manifests, "---\n"...), append(text, '\n')...)
	}
	return len(bindings), fleet.Hub.Apply(ctx, manifests)
}

// awaitEvaluations waits until all policies were evaluated, too. Statuses are written
// every few seconds.
func awaitEvaluations(ctx context.Context, fleet *kube.Fleet, want int) error {
	return kube.Until(ctx, 30*time.Second, func() error { return haveVerdicts(ctx, fleet, want) })
}

func haveVerdicts(ctx context.Context, fleet *kube.Fleet, want int) error {
	body, err := fleet.Hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/federator.dev/v1alpha1/fleetpolicies").Do(ctx).Raw()
	if err != nil {
		return err
	}
	var list v1alpha1.FleetPolicyList
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Status.Totals == nil {
			return fmt.Errorf("FleetPolicy %q has no verdicts: %v", p.Name, p.Status.Conditions)
		}
	}
	if len(list.Items) != want {
		return fmt.Errorf("%d FleetPolicies have verdicts, want %d", len(list.Items), want)
	}
	return nil
}

// buildFederator builds the command of this tree.
func (b *bench) buildFederator(ctx context.Context) (binary string, err error) {
	binary = filepath.Join(b.dir, "federator")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/federator").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build federator: %w\n%s", err, out)
	}
	return binary, nil
}

// serveCorrections runs a binary on a hub.
func (b *bench) serveCorrections(ctx context.Context, fleet *kube.Fleet, binary string) (*exec.Cmd, error) {
	kubeconfig, config := filepath.Join(b.dir, "hub.kubeconfig"), filepath.Join(b.dir, "federator.yaml")
	text := fmt.Sprintf(`sources: {kubeconfig: %s, clusterAPI: {namespaces: [fleet]}}
network: {allow: [127.0.0.0/8]}
listen: {serve: "127.0.0.1:0", admin: "127.0.0.1:0"}
query: {listen: "127.0.0.1:0", priority: false}
policies: {hub: true, allowFile: true, library: true}
`, kubeconfig)
	if err := errors.Join(os.WriteFile(kubeconfig, fleet.Hub.Kubeconfig(), 0o600), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary, "serve", "--config", config)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	log, err := os.Create(filepath.Join(b.dir, "federator.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, cmd.Start()
}

// drift makes ConfigMaps, whose names begin with prefix, drift, one after the other.
func drift(ctx context.Context, client *kubernetes.Clientset, prefix string, n int) (late, bare []time.Duration, err error) {
	maps := client.CoreV1().ConfigMaps("default")
	w, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "managed"})
	if err != nil {
		return nil, nil, err
	}
	defer w.Stop()
	corrected := func(name string) error {
		timeout := time.After(2 * time.Minute)
		for {
			select {
			case e, open := <-w.ResultChan():
				m, ok := e.Object.(*corev1.ConfigMap)
				if !open || !ok {
					return fmt.Errorf("the watch has ended: %v", e.Object)
				}
				if m.Name == name && m.Labels["tier"] == "gold" {
					return nil
				}
			case <-timeout:
				return fmt.Errorf("%s is not corrected", name)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	for i := range n + 1 {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"managed": "yes"}}}, metav1.CreateOptions{}); err != nil {
			return nil, nil, err
		}
		if err := corrected(name); err != nil {
			return nil, nil, err
		}
		if i == 0 {
			continue // everything has begun
		}
		patched := time.Now()
		if _, err := maps.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"silver"}}}`), metav1.PatchOptions{}); err != nil {
			return nil, nil, err
		}
		drifted := time.Now()
		if err := corrected(name); err != nil {
			return nil, nil, err
		}
		late, bare = append(late, time.Since(drifted)), append(bare, drifted.Sub(patched))
	}
	return late, bare, nil
}
