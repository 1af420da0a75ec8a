package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"federator.dev/federator/test/git"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/assets"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's own words are not the test's
	code := m.Run()
	if err := shared.stop(); err != nil {
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

// shared is the stage of all tests of this process.
var shared stage

// stage is what documents share: programs, a hub with two members, and a federator that
// serves them, as the chart deploys it.
type stage struct {
	build, boot       sync.Once
	builtErr, bootErr error

	dir, bin   string
	fleet      *kube.Fleet
	kubeconfig []byte
	server     *process
	remote     string // bare repository that policies are pushed to

	admin, health, agents string // addresses for federators that documents start
}

// built returns the stage, with its programs.
func built(t *testing.T) *stage {
	t.Helper()
	shared.build.Do(func() { shared.builtErr = shared.programs(context.WithoutCancel(t.Context())) })
	must(t, shared.builtErr)
	return &shared
}

// booted returns the stage, with its clusters.
func booted(t *testing.T) *stage {
	t.Helper()
	s := built(t)
	s.boot.Do(func() { s.bootErr = s.clusters(context.WithoutCancel(t.Context())) })
	must(t, s.bootErr)
	return s
}

// ready boots the clusters, unless a document needs none, and has what it leaves on the
// hub deleted at its end.
func (s *stage) ready(t *testing.T, all []block) {
	t.Helper()
	if !slices.ContainsFunc(all, func(b block) bool {
		return b.language == "yaml" || languages[b.language] && slices.ContainsFunc(b.commands(), func(c command) bool {
			_, _, ok := except(c.text)
			return !ok
		})
	}) {
		return
	}
	booted(t)
	t.Cleanup(func() {
		if err := s.sweep(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the server of the fleet logged:\n%s", s.server.output())
		}
	})
}

// programs builds what documents run.
func (s *stage) programs(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "federator-docs-")
	if err != nil {
		return err
	}
	s.dir, s.bin = dir, filepath.Join(dir, "bin")
	if err := os.Mkdir(s.bin, 0o755); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(s.bin, "federator"), "./cmd/federator")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build federator: %w\n%s", err, out)
	}
	return nil
}

// clusters boots the hub and its members, and federator beside them.
func (s *stage) clusters(ctx context.Context) error {
	var tools string
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		tools, err = helm(gctx)
		return err
	})
	g.Go(func() error {
		kubectl, err := assets.Ensure(gctx, assets.Options{Progress: os.Stderr}, assets.Kubectl)
		if err != nil {
			return err
		}
		// The plugin, as docs/install.md has it.
		return errors.Join(os.Symlink(kubectl.Binary(assets.Kubectl), filepath.Join(s.bin, "kubectl")), os.Symlink("federator", filepath.Join(s.bin, "kubectl-federator")))
	})
	g.Go(func() (err error) {
		s.fleet, err = kube.Start(ctx, kube.Options{Members: len(members), Progress: os.Stderr})
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	for _, a := range []*string{&s.admin, &s.health, &s.agents} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		*a = l.Addr().String()
		if err := l.Close(); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Symlink(filepath.Join(tools, "helm"), filepath.Join(s.bin, "helm")),
		s.repository(), s.populate(ctx), s.contexts(), s.serve(ctx),
	)
}

// helm returns where the pinned tools are, building them if they are not in the cache.
func helm(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "make", "--silent", "--no-print-directory", "helm")
	cmd.Dir = root
	// A make that runs the tests must not have a say in this one.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "MAKE") || strings.HasPrefix(s, "MFLAGS") })
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("make helm: %w\n%s", err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

// repository makes the repository that documents push to: it has one commit.
func (s *stage) repository() error {
	work, err := git.Init(filepath.Join(s.dir, "seed"))
	if err != nil {
		return err
	}
	if _, err := work.Commit(map[string]string{"README.md": "Policies of the platform team.\n"}); err != nil {
		return err
	}
	s.remote = filepath.Join(s.dir, "fleet-policies.git")
	_, err = work.Run("clone", "--quiet", "--bare", ".", s.remote)
	return err
}

// contexts writes the reader's kubeconfig.
func (s *stage) contexts() error {
	all := clientcmdapi.NewConfig()
	for name, c := range map[string]*kube.ControlPlane{"hub": s.fleet.Hub.ControlPlane, "dev": s.fleet.Members[0], "staging": s.fleet.Members[1]} {
		one, err := clientcmd.Load(c.Kubeconfig())
		if err != nil {
			return err
		}
		used := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[used.Cluster], one.AuthInfos[used.AuthInfo]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	all.CurrentContext = "hub"
	var err error
	s.kubeconfig, err = clientcmd.Write(*all)
	return err
}

// configuration is what the chart gives, but for where this machine's members and
// repositories are.
const configuration = `sources:
  kubeconfig: %s
  clusterAPI: {namespaces: [fleet]}
network: {allow: [127.0.0.0/8]}
query:
  listen: 127.0.0.1:0
  tls: {certFile: tls.crt, keyFile: tls.key}
policies: {hub: true, library: true, allowFile: true}
listen: {serve: 127.0.0.1:0, admin: 127.0.0.1:0}
`

// serve starts federator. The Secret is what the chart makes of its certificate.
func (s *stage) serve(ctx context.Context) error {
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return err
	}
	files := map[string]string{
		"federator.yaml": fmt.Sprintf(configuration, s.fleet.Hub.KubeconfigFile()), "tls.crt": string(crt), "tls.key": string(key),
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
	if err := errors.Join(err, s.fleet.Hub.Apply(ctx, fmt.Appendf(nil, secret, crt, crt, key))); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(s.bin, "federator"), "serve", "--config", "federator.yaml")
	cmd.Dir, cmd.Env = s.dir, []string{"HOME=" + s.dir, "TMPDIR=" + os.TempDir(), "PATH=" + os.Getenv("PATH")}
	s.server, err = serving(ctx, cmd)
	return err
}

const secret = `apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: serving, namespace: federator, labels: {app.kubernetes.io/part-of: federator}}
stringData: {ca.crt: %q, tls.crt: %q, tls.key: %q}
`

// stop ends everything.
func (s *stage) stop() error {
	var errs []error
	if s.server != nil && s.server.cmd != nil {
		errs = append(errs, s.server.stop())
	}
	if s.fleet != nil {
		errs = append(errs, s.fleet.Stop())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
