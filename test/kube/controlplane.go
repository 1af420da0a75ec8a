package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube/assets"
	"federator.dev/federator/test/kube/tcpproxy"
)

const (
	serviceRange = "10.96.0.0/16" // whose first address is the kubernetes Service's
	podRange     = "10.244.0.0/16"
)

// ControlPlane is one running cluster: a member, or the hub.
type ControlPlane struct {
	// Name is hub, member-1, member-2, …
	Name string
	// Dir holds the cluster's data, logs, certificates and kubeconfigs.
	Dir string

	// Etcd is shared by all with Options.SharedEtcd.
	Etcd      *Process
	APIServer *Process
	// These are nil without controllers.
	ControllerManager, Scheduler, Kwok *Process

	// Proxy stands before the API server: kubeconfigs lead to it.
	Proxy *tcpproxy.Proxy

	pki      *pki
	addr     string // the API server's own
	etcdURL  string
	etcdRoot string // key prefix
	admin    Credentials
	http     *http.Client // admin, direct
	client   kubernetes.Interface
}

// startControlPlane starts etcd, the API server, set up for controllers or not, and the
// proxy.
func (f *Fleet) startControlPlane(ctx context.Context, name string, controllers bool) (*ControlPlane, error) {
	c := &ControlPlane{Name: name, Dir: filepath.Join(f.Dir, name)}
	var err error
	if c.pki, err = newPKI(filepath.Join(c.Dir, "pki"), name); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if c.admin, err = c.IssueCert("kubernetes-admin", 24*time.Hour, "system:masters"); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := c.connect(f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if f.etcd != nil {
		c.Etcd, c.etcdURL, c.etcdRoot = f.etcd, f.etcdURL, "/"+name
	} else {
		c.etcdRoot = "/registry"
		if c.Etcd, c.etcdURL, err = f.startEtcd(ctx, name, c.Dir); err != nil {
			return nil, err
		}
	}
	if err := f.startAPIServer(ctx, c, controllers); err != nil {
		return nil, err
	}
	if c.client, err = kubernetes.NewForConfigAndClient(c.DirectRESTConfig(), c.http); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := f.startProxy(ctx, c); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for file, config := range map[string][]byte{"kubeconfig": c.Kubeconfig(), "direct.kubeconfig": c.kubeconfig(c.addr, c.admin)} {
		if err := os.WriteFile(filepath.Join(c.Dir, file), config, 0o600); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

func (f *Fleet) startSharedEtcd(ctx context.Context) (err error) {
	f.etcd, f.etcdURL, err = f.startEtcd(ctx, "shared", filepath.Join(f.Dir, "shared"))
	return err
}

func (f *Fleet) startEtcd(ctx context.Context, name, dir string) (*Process, string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var url string
	p, err := f.startProcess(ctx, 2, func(ports []int) *Process {
		url = "http://" + localAddr(ports[0])
		peer := "http://" + localAddr(ports[1])
		return &Process{
			name: name + "/etcd", path: f.assets.Binary(assets.Etcd), log: filepath.Join(dir, "etcd.log"),
			args: []string{
				"--name=etcd-0", "--data-dir=" + filepath.Join(dir, "etcd"),
				"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
				"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=etcd-0=" + peer,
				"--unsafe-no-fsync", "--log-level=warn", "--watch-progress-notify-interval=5s",
				"--quota-backend-bytes=8589934592",
			},
			ready: func(ctx context.Context) error { return probe(ctx, client, url+"/readyz") },
		}
	})
	return p, url, err
}

func (f *Fleet) startAPIServer(ctx context.Context, c *ControlPlane, controllers bool) (err error) {
	c.APIServer, c.addr, err = f.newAPIServer(ctx, c, "kube-apiserver", controllers)
	return err
}

// AddAPIServer starts one more API server of a control plane without controllers, and returns it
// with its address; Proxy.SetTargets has the proxy lead to it, too.
func (f *Fleet) AddAPIServer(ctx context.Context, c *ControlPlane, name string) (*Process, string, error) {
	return f.newAPIServer(ctx, c, name, false)
}

// APIServerAddress returns where APIServer itself listens.
func (c *ControlPlane) APIServerAddress() string { return c.addr }

func (f *Fleet) newAPIServer(ctx context.Context, c *ControlPlane, name string, controllers bool) (*Process, string, error) {
	extra := f.opts.APIServerArgs
	if f.opts.Audit {
		audit, err := c.auditArgs()
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", c.Name, err)
		}
		extra = append(audit, extra...)
	}
	var addr string
	p, err := f.startProcess(ctx, 1, func(ports []int) *Process {
		addr = localAddr(ports[0])
		ready := "https://" + addr + "/readyz"
		return &Process{
			name: c.Name + "/" + name, path: f.assets.Binary(assets.APIServer),
			log:   filepath.Join(c.Dir, name+".log"),
			args:  append(c.apiServerArgs(ports[0], controllers), extra...),
			ready: func(ctx context.Context) error { return probe(ctx, c.http, ready) },
		}
	})
	return p, addr, err
}

func (c *ControlPlane) apiServerArgs(port int, controllers bool) []string {
	args := []string{
		"--etcd-servers=" + c.etcdURL, "--etcd-prefix=" + c.etcdRoot,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		// Nothing routes Services here, and a loopback address may not be an endpoint.
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=RBAC", "--allow-privileged=true",
		"--client-ca-file=" + c.pki.file("ca.crt"),
		"--tls-cert-file=" + c.pki.file("apiserver.crt"), "--tls-private-key-file=" + c.pki.file("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pki.file("service-accounts.key"),
		"--service-account-signing-key-file=" + c.pki.file("service-accounts.key"),
		"--requestheader-client-ca-file=" + c.pki.file("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki.file("front-proxy-client.crt"), "--proxy-client-key-file=" + c.pki.file("front-proxy-client.key"),
	}
	if !controllers {
		// Without a controller no namespace gets its default service account,
		// and the plugin would refuse every pod.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

// startProxy listens where nobody else does.
func (f *Fleet) startProxy(ctx context.Context, c *ControlPlane) error {
	for attempt := 0; ; attempt++ {
		port, err := f.port()
		if err != nil {
			return err
		}
		// Stop closes the proxy; the context of the boot must not.
		c.Proxy, err = tcpproxy.Listen(context.WithoutCancel(ctx), localAddr(port), c.addr)
		switch {
		case err == nil:
			f.onStop(func() { _ = c.Proxy.Close() })
			return nil
		case !errors.Is(err, syscall.EADDRINUSE) || attempt == 5:
			return err
		}
	}
}

// connect makes the administrator's HTTP client, which no proxy stands before.
func (c *ControlPlane) connect(f *Fleet) error {
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAData: c.pki.ca.pem, CertData: c.admin.Cert, KeyData: c.admin.Key,
	}})
	if err != nil {
		return err
	}
	c.http = adminClient(config)
	f.onStop(c.http.CloseIdleConnections)
	return nil
}

func adminClient(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 32}}
}

// probe succeeds when a GET answers 200.
func probe(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
