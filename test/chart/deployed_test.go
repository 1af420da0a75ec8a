package chart

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/test/kube"
)

// asDeployed runs what a StatefulSet says as its ServiceAccount, outside of a Pod.
func asDeployed(t *testing.T, hub *kube.Hub, d *appsv1.StatefulSet) (p *process, root string) {
	t.Helper()
	pod := d.Spec.Template.Spec
	root = t.TempDir()
	mount(t, hub, pod, root)
	// The account is there: of IssueToken that is not known.
	_, err := hub.Client().CoreV1().ServiceAccounts(system).Get(t.Context(), pod.ServiceAccountName, metav1.GetOptions{})
	must(t, err)
	token, err := hub.IssueToken(t.Context(), system, pod.ServiceAccountName, time.Hour)
	must(t, err)
	kubeconfig := filepath.Join(root, "kubeconfig")
	must(t, os.WriteFile(kubeconfig, hub.KubeconfigWith(token), 0o600))
	relocate(t, root, kubeconfig)
	return start(t, build(t, t.TempDir()), pod.Containers[0], root), root
}

// again runs the binary of a process once more, with arguments of a user's on their own
// machine.
func (p *process) again(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.binary, args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("federator %s: %v\n%s", strings.Join(args, " "), err, &errOut)
	}
	return out.String(), errOut.String()
}

// kubeconfigIsWritten from what a user of the hub has, who is given no certificate: by
// name, and by the address that query.tls.hosts has.
func kubeconfigIsWritten(t *testing.T, hub *kube.Hub, p *process) {
	_, port, err := net.SplitHostPort(p.query)
	must(t, err)
	for _, host := range []string{"localhost", "127.0.0.1"} {
		stdout, stderr := p.again(t, "kubeconfig", "--server", "https://"+net.JoinHostPort(host, port),
			"--hub-kubeconfig", hub.KubeconfigFile(), "--service-account", "default/asker")
		if !strings.Contains(stderr, "Secret "+system+"/federator-tls of the hub") {
			t.Errorf("it does not say where the authority is from: %s", stderr)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(stdout))
		must(t, err)
		client, err := kubernetes.NewForConfig(config)
		must(t, err)
		list, err := client.AppsV1().Deployments("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("%s: %v, %v", host, list, err)
		}
	}
}

// TestKubeconfig_FindsTheCAWhateverTheRelease: Secrets have the label that federator
// kubeconfig looks for.
func TestKubeconfig_FindsTheCAWhateverTheRelease(t *testing.T) {
	const label = "app.kubernetes.io/part-of"
	renamed := least("--set", "nameOverride=fleet,fullnameOverride=edge")
	if got := find(t, render(t, renamed...), "Secret", "edge-tls").GetLabels()[label]; got != "federator" {
		t.Errorf("Helm's Secret has %s %q", label, got)
	}
	issued := find(t, render(t, append(renamed, "--set", "query.tls.certManager.enabled=true,query.tls.certManager.issuerName=ca,query.tls.hosts={10.0.0.7,fd00::7,fleet.example.com}")...), "Certificate", "edge")
	labels, _, _ := unstructured.NestedStringMap(issued.Object, "spec", "secretTemplate", "labels")
	names, _, _ := unstructured.NestedStringSlice(issued.Object, "spec", "dnsNames")
	addresses, _, _ := unstructured.NestedStringSlice(issued.Object, "spec", "ipAddresses")
	if labels[label] != "federator" {
		t.Errorf("cert-manager labels the Secret %v", labels)
	}
	if fmt.Sprint(addresses) != "[10.0.0.7 fd00::7]" || !strings.HasSuffix(fmt.Sprint(names), " localhost fleet.example.com]") {
		t.Errorf("it is for %v and %v", names, addresses)
	}
}

// budgetsFollowTheChart: the binary derives them from the memory limit of the chart, with
// exactly the arguments, environment and configuration that are rendered.
func budgetsFollowTheChart(t *testing.T, p *process, metrics string) {
	limit := 0
	for _, e := range p.env {
		if text, ok := strings.CutPrefix(e, "GOMEMLIMIT="); ok {
			_, err := fmt.Sscanf(text, "%dMiB", &limit)
			must(t, err)
		}
	}
	if limit == 0 {
		t.Fatal("the chart sets no GOMEMLIMIT")
	}
	limit <<= 20
	if want := fmt.Sprintf("\ngo_gc_gomemlimit_bytes %v\n", float64(limit)); !strings.Contains(metrics, want) {
		t.Errorf("/metrics has no %s", want)
	}
	cmd := exec.CommandContext(t.Context(), p.binary, append(p.args, "--print-config")...)
	cmd.Env = p.env
	out, err := cmd.Output()
	must(t, err)
	var config struct {
		Budget struct{ Bytes, FleetBytes, ResponseBytes int }
		Index  struct{ LogBytes int }
	}
	must(t, yaml.Unmarshal(out, &config))
	b := config.Budget
	if b.FleetBytes != limit/2 || b.Bytes != limit/4 || b.ResponseBytes != limit/16 || config.Index.LogBytes != limit/32 {
		t.Errorf("of a limit of %d, budgets are %+v and a log of %d", limit, b, config.Index.LogBytes)
	}
}
