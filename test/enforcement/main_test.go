package enforcement

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/assets"
	"federator.dev/federator/test/kube/tcpproxy"
)

// timeout bounds what takes a moment on an idle machine.
const timeout = 60 * time.Second

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's logs are not the test's
	code := m.Run()
	if err := errors.Join(shared.stop(code != 0)...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared is the environment of all stories of this process.
var shared = &environment{testbeds: make(chan *testbed, maxTestbeds)}

// maxTestbeds is how many stories run at once.
const maxTestbeds = 2

// environment has the built programs, and the testbeds that no story uses.
type environment struct {
	once sync.Once
	err  error
	dir  string // with bin/federator, bin/kubectl, tls.crt and tls.key

	testbeds chan *testbed
}

// build builds the programs of stories, once.
func (th *environment) build(ctx context.Context) error {
	th.once.Do(func() { th.err = th.make(ctx) })
	return th.err
}

func (th *environment) make(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "enforcement-")
	if err != nil {
		return err
	}
	th.dir = dir
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(bin, "federator"), "federator.dev/federator/cmd/federator")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build federator: %w\n%s", err, out)
	}
	built, err := assets.Ensure(ctx, assets.Options{Progress: os.Stderr}, assets.Kubectl)
	if err != nil {
		return err
	}
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return err
	}
	for range maxTestbeds {
		th.testbeds <- &testbed{}
	}
	return errors.Join(
		os.Symlink(built.Binary(assets.Kubectl), filepath.Join(bin, "kubectl")),
		os.WriteFile(filepath.Join(dir, "tls.crt"), crt, 0o600), os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600),
	)
}

// stop ends all control planes. Their logs are shown after a failure if E2E_LOGS is set.
func (th *environment) stop(failed bool) []error {
	var errs []error
	for range len(th.testbeds) {
		l := <-th.testbeds
		if l.fleet == nil {
			continue
		}
		if failed && os.Getenv("E2E_LOGS") != "" {
			l.fleet.WriteLogs(os.Stderr)
		}
		errs = append(errs, l.fleet.Stop())
	}
	if th.dir != "" {
		errs = append(errs, os.RemoveAll(th.dir))
	}
	return errs
}

// testbed is a hub and members for one story at a time.
type testbed struct {
	fleet *kube.Fleet
	free  []*kube.ControlPlane
}

// start boots the hub and the first members, once.
func (l *testbed) start(ctx context.Context) error {
	if l.fleet != nil {
		return nil
	}
	f, err := kube.Start(context.WithoutCancel(ctx), kube.Options{Members: 2, Audit: true, Progress: os.Stderr})
	if err != nil {
		return err
	}
	l.fleet, l.free = f, slices.Clone(f.Members)
	if err := f.Hub.InstallCRDs(ctx, "../../charts/federator/crds"); err != nil {
		return err
	}
	return f.Hub.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: federator}\n"))
}

// member returns a control plane for the exclusive use of a story.
func (l *testbed) member(ctx context.Context) (*kube.ControlPlane, error) {
	if len(l.free) == 0 {
		c, err := l.fleet.AddMember(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		l.free = append(l.free, c)
	}
	c := l.free[0]
	l.free = l.free[1:]
	return c, c.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"))
}

// What stories leave in members and on the hub, in the order in which it is deleted.
var (
	inMembers = []string{
		"/apis/apps/v1/namespaces/shop/deployments", "/api/v1/namespaces/shop/pods", "/api/v1/namespaces/shop/services",
		"/api/v1/namespaces/shop/configmaps", "/api/v1/namespaces/shop/secrets", "/api/v1/namespaces/shop/serviceaccounts",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles",
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	}
	onTheHub = []string{
		"/apis/federator.dev/v1alpha1/fleetpolicies", "/apis/federator.dev/v1alpha1/policysources", "/apis/federator.dev/v1alpha1/notifications", "/apis/federator.dev/v1alpha1/actions",
		"/apis/federator.dev/v1alpha1/policystates", "/apis/federator.dev/v1alpha1/approvals", "/apis/federator.dev/v1alpha1/rollbacks", "/apis/federator.dev/v1alpha1/plans", "/apis/federator.dev/v1alpha1/planparts",
		"/api/v1/namespaces/federator/configmaps", "/api/v1/namespaces/federator/secrets", "/apis/coordination.k8s.io/v1/namespaces/federator/leases",
	}
)

// deleteCollections deletes all objects of collections.
func deleteCollections(ctx context.Context, c *kube.ControlPlane, collections []string) error {
	var errs []error
	for _, path := range collections {
		client := c.Client().CoreV1().RESTClient()
		if err := client.Delete().AbsPath(path).Param("gracePeriodSeconds", "0").Do(ctx).Error(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", c.Name, path, err))
		}
	}
	return errors.Join(errs...)
}

// restore restores a member to its state before the story.
func (l *testbed) restore(ctx context.Context, c *kube.ControlPlane) error {
	err := c.Proxy.Set(tcpproxy.Mode{})
	for _, p := range []*kube.Process{c.Etcd, c.APIServer} {
		if !p.Running() {
			err = errors.Join(err, p.Start(ctx))
		}
	}
	l.free = append(l.free, c)
	return errors.Join(err, deleteCollections(ctx, c, inMembers))
}
