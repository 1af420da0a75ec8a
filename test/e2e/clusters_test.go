package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

// shared is the pool of control planes of all tests in this process.
var shared pool

// pool lends control planes. More are booted when all are lent out.
type pool struct {
	mu    sync.Mutex
	fleet *kube.Fleet
	free  []*kube.ControlPlane
	old   *kube.Fleet // a hub of the older contract alone, once requested
}

// hub returns the hub, started with the pool.
func (p *pool) hub() (*kube.Hub, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.start(); err != nil {
		return nil, err
	}
	return p.fleet.Hub, nil
}

// hubAt returns a hub that serves one version of the contract only.
func (p *pool) hubAt(version string) (*kube.Hub, error) {
	if version != kube.V1Beta1 {
		return nil, fmt.Errorf("there is no hub of its own for version %q", version)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.old == nil {
		var err error
		if p.old, err = kube.Start(context.Background(), kube.Options{ClusterAPI: version}); err != nil {
			return nil, err
		}
	}
	return p.old.Hub, nil
}

// start boots the hub and the first members. p.mu must be held.
func (p *pool) start() error {
	if p.fleet != nil {
		return nil
	}
	f, err := kube.Start(context.Background(), kube.Options{Members: 2, Progress: os.Stderr})
	if err != nil {
		return err
	}
	p.fleet, p.free = f, slices.Clone(f.Members)
	return nil
}

// borrow returns a control plane that nobody else uses until it is given back.
func (p *pool) borrow() (*kube.ControlPlane, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.start(); err != nil {
		return nil, err
	}
	if len(p.free) == 0 {
		return p.fleet.AddMember(context.Background())
	}
	c := p.free[0]
	p.free = p.free[1:]
	return c, nil
}

// giveBack returns a control plane in working order.
func (p *pool) giveBack(c *kube.ControlPlane) error {
	errs := []error{c.Proxy.Set(tcpproxy.Mode{})}
	for _, proc := range []*kube.Process{c.Etcd, c.APIServer} {
		if !proc.Running() {
			errs = append(errs, proc.Start(context.Background()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s does not come back: %w", c.Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, c)
	return nil
}

// stop ends all control planes; the next caller gets new ones. With E2E_LOGS set, the ends of their logs are
// shown after a failure.
func (p *pool) stop(failed bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, f := range []*kube.Fleet{p.fleet, p.old} {
		if f == nil {
			continue
		}
		if failed && os.Getenv("E2E_LOGS") != "" {
			f.WriteLogs(os.Stderr)
		}
		errs = append(errs, f.Stop())
	}
	p.fleet, p.free, p.old = nil, nil, nil
	return errors.Join(errs...)
}

// direct returns a kubeconfig of an administrator that goes around the proxy.
func direct(c *kube.ControlPlane) ([]byte, error) {
	config, err := clientcmd.Load(c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = c.DirectRESTConfig().Host
	}
	return clientcmd.Write(*config)
}

// logs collects what is logged; beyond maxLogs bytes the older half goes. It
// may be written to from any goroutine.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxLogs = 256 << 10

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > maxLogs {
		l.buf.Next(maxLogs / 2)
	}
	return l.buf.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
