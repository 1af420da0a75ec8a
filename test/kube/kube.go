package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"federator.dev/federator/test/kube/assets"
)

// The versions of the Cluster API contract that a hub can serve.
const (
	V1Beta1 = "v1beta1"
	V1Beta2 = "v1beta2"
)

// LatencyVariable is of the environment: tests run with it as if their API servers
// were far away, which finds what only holds because everything is near. It is a
// duration, or the hub's and the members', with a comma between.
const LatencyVariable = "FEDERATOR_TEST_LATENCY"

// Options describes a fleet. The zero value is a hub without members.
type Options struct {
	// Members is the number of members started with the fleet.
	Members int
	// NoHub leaves the hub out.
	NoHub bool
	// Controllers runs kube-controller-manager, kube-scheduler and kwok on
	// each member, which then has Nodes fake nodes.
	Controllers bool
	// HubControllers runs the same on the hub, without nodes: garbage
	// collection and namespace deletion need it.
	HubControllers bool
	// Nodes is the number of nodes per member with Controllers; 0 means 3.
	Nodes int
	// SharedEtcd has all control planes share one etcd, under a prefix each.
	SharedEtcd bool
	// ClusterAPI is the only contract version that the hub serves; empty means
	// that both are served and V1Beta2 is stored.
	ClusterAPI string
	// HubCRDs names further Cluster API CRDs for the hub, as their files are
	// called: "cluster.x-k8s.io_machines".
	HubCRDs []string
	// APIServerArgs are appended to the flags of every kube-apiserver.
	APIServerArgs []string
	// Audit has every kube-apiserver record writes, for ControlPlane.Audit.
	Audit bool
	// HubLatency and MemberLatency are those of the way to the API servers, in each
	// direction; where both are 0, LatencyVariable says them.
	HubLatency, MemberLatency time.Duration
	// Dir keeps data, logs and kubeconfigs; empty means a temporary directory
	// that Stop removes.
	Dir string
	// Progress receives a line per step; nil discards them.
	Progress io.Writer
}

func (o Options) validate() error {
	switch {
	case o.Members < 0 || o.Nodes < 0:
		return fmt.Errorf("negative number of members or nodes: %d, %d", o.Members, o.Nodes)
	case o.HubLatency < 0 || o.MemberLatency < 0:
		return fmt.Errorf("negative latency: %v, %v", o.HubLatency, o.MemberLatency)
	case o.ClusterAPI != "" && o.ClusterAPI != V1Beta1 && o.ClusterAPI != V1Beta2:
		return fmt.Errorf("unknown Cluster API version %q", o.ClusterAPI)
	}
	return nil
}

func (o *Options) readLatency(text string) error {
	if text == "" || o.HubLatency != 0 || o.MemberLatency != 0 {
		return nil
	}
	hub, members, two := strings.Cut(text, ",")
	if !two {
		members = hub
	}
	var errs [2]error
	o.HubLatency, errs[0] = time.ParseDuration(hub)
	o.MemberLatency, errs[1] = time.ParseDuration(members)
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("%s: %w", LatencyVariable, err)
	}
	return o.validate()
}

// Fleet is a running hub and its members.
type Fleet struct {
	// Hub is nil with Options.NoHub.
	Hub *Hub
	// Members are named member-1, member-2, …
	Members []*ControlPlane
	// Dir holds a directory per control plane with its data and logs.
	Dir string

	opts    Options
	assets  assets.Assets
	spawner *spawner
	etcd    *Process // the shared one, or nil
	etcdURL string
	detach  func() bool // ends the watch on Start's context
	stopped sync.Once
	stopErr error

	mu      sync.Mutex
	ports   map[int]bool // handed out before
	procs   []*Process
	closers []func() // what Stop does after the processes are gone
	closed  bool     // the closers are running or have run
}

// Start builds the binaries if they are missing, boots a fleet and waits until
// every part answers. The fleet lives until ctx ends or Stop is called. On an
// error nothing is left running, and the error carries the log of what failed.
func Start(ctx context.Context, opts Options) (*Fleet, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	if opts.Nodes == 0 {
		opts.Nodes = 3
	}
	if err := opts.readLatency(os.Getenv(LatencyVariable)); err != nil {
		return nil, err
	}
	names := []string{assets.Etcd, assets.APIServer}
	if opts.Controllers || opts.HubControllers {
		names = append(names, assets.ControllerManager, assets.Scheduler, assets.Kwok)
	}
	built, err := assets.Ensure(ctx, assets.Options{Progress: opts.Progress}, names...)
	if err != nil {
		return nil, err
	}
	f := &Fleet{opts: opts, assets: built, Dir: opts.Dir, ports: make(map[int]bool)}
	if f.Dir == "" {
		f.Dir, err = os.MkdirTemp("", "federator-kube-")
	} else if f.Dir, err = filepath.Abs(f.Dir); err == nil {
		err = os.MkdirAll(f.Dir, 0o755)
	}
	if err != nil {
		return nil, err
	}
	f.spawner = newSpawner()
	f.detach = context.AfterFunc(ctx, func() { _ = f.Stop() })
	if err := f.boot(ctx); err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

func (f *Fleet) boot(ctx context.Context) error {
	start := time.Now()
	if f.opts.SharedEtcd {
		if err := f.startSharedEtcd(ctx); err != nil {
			return err
		}
	}
	f.Members = make([]*ControlPlane, f.opts.Members)
	g, ctx := errgroup.WithContext(ctx)
	if !f.opts.NoHub {
		g.Go(func() (err error) {
			f.Hub, err = f.startHub(ctx)
			return err
		})
	}
	for i := range f.Members {
		g.Go(func() (err error) {
			f.Members[i], err = f.startMember(ctx, i+1)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(f.opts.Progress, "kube: %d control planes ready in %s\n", f.size(), time.Since(start).Round(10*time.Millisecond))
	return nil
}

func (f *Fleet) size() int {
	n := len(f.Members)
	if f.Hub != nil {
		n++
	}
	return n
}

func (f *Fleet) startHub(ctx context.Context) (*Hub, error) {
	c, err := f.startControlPlane(ctx, "hub", f.opts.HubControllers)
	if err != nil {
		return nil, err
	}
	c.Proxy.Distance(f.opts.HubLatency)
	h := &Hub{ControlPlane: c, version: V1Beta2}
	if f.opts.ClusterAPI != "" {
		h.version = f.opts.ClusterAPI
	}
	if err := h.install(ctx, f.assets.CRDs(), f.opts); err != nil {
		return nil, fmt.Errorf("hub: install Cluster API CRDs: %w", err)
	}
	// After the CRDs: a garbage collector that already runs takes half a
	// minute to notice new kinds.
	if f.opts.HubControllers {
		if err := f.startControllers(ctx, c); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (f *Fleet) startMember(ctx context.Context, i int) (*ControlPlane, error) {
	c, err := f.startControlPlane(ctx, "member-"+strconv.Itoa(i), f.opts.Controllers)
	if err != nil {
		return nil, err
	}
	c.Proxy.Distance(f.opts.MemberLatency)
	if f.opts.Controllers {
		if err := f.startControllers(ctx, c); err != nil {
			return nil, err
		}
		if err := c.addNodes(ctx, f.opts.Nodes); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return c, nil
}

// AddMember boots one more member and appends it to Members.
func (f *Fleet) AddMember(ctx context.Context) (*ControlPlane, error) {
	m, err := f.startMember(ctx, len(f.Members)+1)
	if err != nil {
		return nil, err
	}
	f.Members = append(f.Members, m)
	return m, nil
}

// Processes returns every process of the fleet, dead ones included.
func (f *Fleet) Processes() []*Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.procs)
}

// WriteLogs writes the end of every process's log, for a failed test: little of each,
// for what the test said must not be lost among it.
func (f *Fleet) WriteLogs(w io.Writer) {
	const most = 1 << 10
	for _, p := range f.Processes() {
		fmt.Fprintf(w, "=== %s (%s)\n%s\n", p.Name(), p.LogFile(), p.tail(0, most))
	}
}

// Stop kills every process, closes the proxies and waits for all of it, then
// removes the data unless Options.Dir named the place. Later calls return what
// the first did.
func (f *Fleet) Stop() error {
	f.stopped.Do(func() {
		f.detach()
		f.spawner.refuse()
		var g sync.WaitGroup
		for _, p := range f.Processes() {
			g.Go(p.Kill)
		}
		g.Wait()
		f.spawner.close()
		f.mu.Lock()
		closers := f.closers
		f.closed = true
		f.mu.Unlock()
		for _, c := range closers {
			c()
		}
		if f.opts.Dir == "" {
			f.stopErr = os.RemoveAll(f.Dir)
		}
	})
	return f.stopErr
}

// startProcess starts what build describes for the ports it is given, with
// others for as long as somebody else is quicker to bind them.
func (f *Fleet) startProcess(ctx context.Context, ports int, build func(ports []int) *Process) (*Process, error) {
	for attempt := 0; ; attempt++ {
		chosen := make([]int, ports)
		for i := range chosen {
			var err error
			if chosen[i], err = f.port(); err != nil {
				return nil, err
			}
		}
		p := build(chosen)
		p.spawner = f.spawner
		p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(p.log)}
		f.track(p)
		err := p.Start(ctx)
		if err == nil || !errors.Is(err, errPortTaken) || attempt == 5 {
			return p, err
		}
	}
}

// onStop has Stop call fn, or calls it now if that is over.
func (f *Fleet) onStop(fn func()) {
	f.mu.Lock()
	closed := f.closed
	if !closed {
		f.closers = append(f.closers, fn)
	}
	f.mu.Unlock()
	if closed {
		fn()
	}
}

// track makes p known to Stop in place of an earlier attempt at it.
func (f *Fleet) track(p *Process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.IndexFunc(f.procs, func(q *Process) bool { return q.name == p.name }); i >= 0 {
		f.procs[i] = p
		return
	}
	f.procs = append(f.procs, p)
}

// port picks a port that is free now, outside the ephemeral range so that no
// outgoing connection takes it while its server is down. Another process may
// still be quicker: a process that finds it taken retries with another.
func (f *Fleet) port() (int, error) {
	const low, high = 20000, 32000
	for range 1000 {
		p := low + rand.IntN(high-low)
		f.mu.Lock()
		used := f.ports[p]
		f.ports[p] = true
		f.mu.Unlock()
		if used {
			continue
		}
		ln, err := net.Listen("tcp4", localAddr(p))
		if err != nil {
			continue
		}
		return p, ln.Close()
	}
	return 0, errors.New("no free port")
}

func localAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
