package clients

import (
	"bytes"
	"context"
	"errors"
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

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/assets"
)

// place is one of the kinds of targets that the table has a column for.
type place string

const (
	real    place = "real"
	fleet   place = "fleet"
	flat    place = "flat"
	members place = "members"
)

// target is what a client speaks to, as a user.
type target struct {
	rig  *rig
	at   place
	site string // whose API server it is, or whose member; empty of all
	user string

	config     *rest.Config
	kubeconfig string // file
	dir        string // of caches, and home
}

// client returns an HTTP client with the user's credentials.
func (t *target) client(tb testing.TB) *http.Client {
	tb.Helper()
	client, err := rest.HTTPClientFor(t.config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.CloseIdleConnections)
	return client
}

// ns returns how the home site's namespace is called at the target.
func (t *target) ns(namespace string) string { return t.key(home, namespace) }

// key returns how a namespace, or a cluster-scoped object, of a site is called at the
// target.
func (t *target) key(site, name string) string {
	if t.at != flat {
		return name
	}
	return flatPrefix(site) + name
}

func flatPrefix(site string) string {
	return namespace + "." + strings.ReplaceAll(site, ".", "_") + "."
}

// rig is the federator command over members, and all that clients speak to.
type rig struct {
	dir   string
	fleet *kube.Fleet
	fed   *federator
	tools string // directory of Helm
	bin   string // kubectl

	mu      sync.Mutex
	targets map[string]*target
}

// newRig starts it all; the test's end ends it.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir(), targets: map[string]*target{}}
	var building sync.WaitGroup
	var binary string
	var errs [3]error
	building.Go(func() { binary, errs[0] = build(t.Context(), r.dir) })
	building.Go(func() { r.tools, errs[1] = tools(t.Context()) })
	r.fleet = shared.Start(t)
	building.Wait()
	built, err := assets.Ensure(t.Context(), assets.Options{}, assets.Kubectl)
	errs[2] = err
	must(t, errors.Join(errs[:]...))
	r.bin = built.Binary(assets.Kubectl)

	must(t, r.fleet.Hub.Apply(t.Context(), []byte(hubManifests)))
	must(t, writeChart(filepath.Join(r.dir, "chart")))
	must(t, os.WriteFile(filepath.Join(r.dir, "settings.yaml"), []byte(settings), 0o600))
	var filling sync.WaitGroup
	filled := make([]error, len(sites))
	for i, site := range sites {
		filling.Go(func() { filled[i] = r.join(t.Context(), i, site) })
	}
	filling.Wait()
	must(t, errors.Join(filled...))
	r.fed, err = serve(t.Context(), binary, r.dir, r.fleet.Hub)
	must(t, err)
	t.Cleanup(func() {
		if err := r.fed.stop(); err != nil {
			t.Errorf("%v\n%s", err, r.fed.Tail(30))
		}
	})
	return r
}

// join fills a site, and makes it a member.
func (r *rig) join(ctx context.Context, i int, site string) error {
	c := r.fleet.Members[i]
	if err := fill(ctx, c, site); err != nil {
		return fmt.Errorf("%s: %w", site, err)
	}
	at, err := r.target(real, site, administrator)
	if err != nil {
		return err
	}
	if _, stderr, err := at.run(ctx, filepath.Join(r.tools, "helm"), "install", "hello", filepath.Join(r.dir, "chart"), "-n", "shop"); err != nil {
		return fmt.Errorf("%s: helm install: %w\n%s", site, err, stderr)
	}
	return r.fleet.Hub.Register(ctx, kube.Cluster{
		Namespace: namespace, Name: site, Kubeconfig: c.Kubeconfig(), Labels: map[string]string{"site": site},
	})
}

// administrator may do everything on the hub and on all members; bob reads pods.
const (
	administrator = "ann"
	bob           = "bob"
)

// target returns a target, the same one every time. Only real API servers and members
// have a site.
func (r *rig) target(at place, site, user string) (*target, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.Join([]string{string(at), site, user}, "-")
	if t := r.targets[name]; t != nil {
		return t, nil
	}
	t := &target{rig: r, at: at, site: site, user: user, dir: filepath.Join(r.dir, name), kubeconfig: filepath.Join(r.dir, name+".yaml")}
	issuer := r.fleet.Hub.ControlPlane
	if at == real {
		issuer = r.fleet.Members[slices.Index(sites, site)]
	}
	var groups []string
	if user == administrator {
		groups = []string{"system:masters"}
	}
	cred, err := issuer.IssueCert(user, time.Hour, groups...)
	if err != nil {
		return nil, err
	}
	t.config = issuer.RESTConfigWith(cred)
	if at != real {
		t.config.CAData = r.fed.ca
		t.config.Host = r.fed.query + map[place]string{fleet: "/fleet", flat: "/flat", members: "/members/" + namespace + "/" + site}[at]
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: t.config.Host, CertificateAuthorityData: t.config.CAData}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{ClientCertificateData: cred.Cert, ClientKeyData: cred.Key}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	if err := errors.Join(os.MkdirAll(t.dir, 0o755), clientcmd.WriteToFile(*config, t.kubeconfig)); err != nil {
		return nil, err
	}
	r.targets[name] = t
	return t, nil
}

// run runs a command with the target's kubeconfig, and a home that no other target has.
func (t *target) run(ctx context.Context, name string, args ...string) (stdout, stderr string, err error) {
	cmd := t.command(ctx, name, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

func (t *target) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"HOME=" + t.dir, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + t.kubeconfig, "KUBECACHEDIR=" + filepath.Join(t.dir, "cache")}
	return cmd
}

// tools builds Helm unless it is in the cache, and returns the directory that it is in.
func tools(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "make", "--silent", "--no-print-directory", "helm")
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
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
