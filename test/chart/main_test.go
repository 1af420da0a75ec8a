package chart

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/test/kube"
)

const chartDir = "../../charts/federator"

// shared is a hub, with a member, that knows the kinds of optional objects.
var shared struct {
	kube.Shared
	client dynamic.Interface
}

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's own words are not the test's
	shared.Options, shared.Prepare = kube.Options{Members: 1}, prepare
	os.Exit(shared.Main(m))
}

func prepare(ctx context.Context) error {
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
	if err := shared.Fleet.Hub.InstallCRDs(ctx, "testdata/crds"); err != nil {
		return err
	}
	for _, ns := range []string{"fleet", "edge", "other", "shops", "argocd", "inventory"} {
		text := "{apiVersion: v1, kind: Namespace, metadata: {name: " + ns + "}}"
		if err := shared.Fleet.Hub.Apply(ctx, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

func fleet(t *testing.T) *kube.Fleet {
	t.Helper()
	return shared.Start(t)
}

// tools builds Helm and kubeconform unless they are in the cache, and returns where
// they are.
var tools = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("make", "--silent", "--no-print-directory", "helm")
	cmd.Dir = "../.."
	// A make that runs the tests must not have a say in this one.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "MAKE") || strings.HasPrefix(s, "MFLAGS") })
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("make helm: %w\n%s", err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
})

// run runs one of the tools.
func run(t *testing.T, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return runUntil(t.Context(), t.TempDir(), name, args...)
}

// runUntil runs one of the tools with a home of its own: nothing of this machine's
// user takes part.
func runUntil(ctx context.Context, home, name string, args ...string) (stdout, stderr string, err error) {
	dir, err := tools()
	if err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, name), args...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	if shared.Fleet != nil {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+shared.Fleet.Hub.KubeconfigFile())
	}
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

// helm runs Helm, which must succeed.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := run(t, "helm", args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout
}

// least are the values that are required.
func least(more ...string) []string {
	return append([]string{"--set", "image.repository=registry.example/federator,clusters.namespaces={fleet}"}, more...)
}

// render renders the chart.
func render(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()
	return objects(t, helm(t, append([]string{"template", "federator", chartDir, "--namespace", "system"}, args...)...))
}

// objects reads the documents of a stream.
func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		must(t, yaml.UnmarshalStrict([]byte(doc), &u.Object))
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
	return out
}

// find returns the only object of a kind whose name ends like that.
func find(t *testing.T, all []*unstructured.Unstructured, kind, suffix string) *unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, u := range all {
		if u.GetKind() == kind && strings.HasSuffix(u.GetName(), suffix) {
			found = append(found, u)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d of kind %s named …%s, want one", len(found), kind, suffix)
	}
	return found[0]
}

// into converts an object.
func into[T any](t *testing.T, u *unstructured.Unstructured) T {
	t.Helper()
	var out T
	text, err := u.MarshalJSON()
	must(t, err)
	must(t, yaml.UnmarshalStrict(text, &out))
	return out
}

// until polls until a check passes, and returns its last error when time is up.
func until(ctx context.Context, check func() error) error {
	return kube.Until(ctx, 90*time.Second, check)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
