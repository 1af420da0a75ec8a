package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

// serverFaults befall a member's API servers and etcd.
var serverFaults = []fault{
	{
		name: "API server SIGKILL", short: true, hold: 10 * time.Second, brief: 500 * time.Millisecond, lists: unbounded,
		inject: func(r *rig) error {
			r.members[0].APIServer.Kill()
			return nil
		},
		heal: func(r *rig) error { return r.members[0].APIServer.Start(r.t.Context()) },
	},
	{name: "rolling restart of three API servers behind one address", lists: unbounded, inject: rollingRestart},
	{
		name: "etcd SIGKILL", hold: 10 * time.Second, brief: time.Second, lists: unbounded,
		inject: func(r *rig) error {
			r.members[0].Etcd.Kill()
			return nil
		},
		heal: func(r *rig) error { return r.members[0].Etcd.Start(r.t.Context()) },
	},
	{
		name: "compacted while the link was cut", hold: 10 * time.Second, brief: time.Second, lists: unbounded,
		inject: mode(tcpproxy.Mode{State: tcpproxy.Cut}),
		heal: func(r *rig) error {
			m := r.members[0]
			if err := m.Compact(r.t.Context()); err != nil {
				return err
			}
			m.APIServer.Kill() // it has what was compacted in its cache
			return errors.Join(m.APIServer.Start(r.t.Context()), m.Proxy.Set(tcpproxy.Mode{}))
		},
	},
	{
		name: "etcd restored from an older snapshot", hold: 10 * time.Second, brief: time.Second, lists: unbounded,
		inject: saveEtcd, heal: restoreEtcd,
	},
	{
		name: "etcd restored, and written past what it was while the link was cut", hold: 5 * time.Second, brief: time.Second, lists: unbounded,
		inject: saveEtcd, heal: restoreAndOvertake,
	},
}

// grace is how long an API server may take to end in order.
const grace = 5 * time.Second

// rollingRestart ends and starts one API server after another, each in order.
func rollingRestart(r *rig) error {
	ctx, m := r.t.Context(), r.members[0]
	all, targets := []*kube.Process{m.APIServer}, []string{m.APIServerAddress()}
	for n := range 2 {
		p, addr, err := r.fleet.AddAPIServer(ctx, m.ControlPlane, fmt.Sprint("kube-apiserver-", n+2))
		if err != nil {
			return err
		}
		all, targets = append(all, p), append(targets, addr)
		r.t.Cleanup(p.Kill)
	}
	m.gated = true
	m.Proxy.SetTargets(targets...)
	m.Proxy.Reset()
	r.settle()
	r.reader.reset()
	before, err := r.lists(ctx)
	if err != nil {
		return err
	}
	r.base = before
	for _, p := range all {
		if err := syscall.Kill(p.PID(), syscall.SIGTERM); err != nil {
			return err
		}
		_ = kube.Until(ctx, grace, func() error { // it waits for watches to end; nobody waits for it that long
			if p.Running() {
				return errors.New("it runs")
			}
			return nil
		})
		p.Kill()
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopped runs what needs a member without its servers, while nothing is written to it.
func (r *rig) stopped(m *member, act func() error) error {
	ctx := r.t.Context()
	m.pause.Lock()
	defer m.pause.Unlock()
	m.APIServer.Kill()
	m.Etcd.Kill()
	if err := act(); err != nil {
		return err
	}
	if err := m.Etcd.Start(ctx); err != nil {
		return err
	}
	return m.APIServer.Start(ctx)
}

func (m *member) saved() string { return filepath.Join(m.Dir, "saved") }

func saveEtcd(r *rig) error {
	m := r.members[0]
	if err := os.RemoveAll(m.saved()); err != nil {
		return err
	}
	return r.stopped(m, func() error { return m.SaveEtcd(m.saved()) })
}

func restoreEtcd(r *rig) error {
	m := r.members[0]
	return r.stopped(m, func() error { return m.RestoreEtcd(m.saved()) })
}

// restoreAndOvertake restores while nobody looks, and shows federator the member once its
// resourceVersions are beyond those that were seen before.
func restoreAndOvertake(r *rig) error {
	m := r.members[0]
	was, err := r.newest(m)
	if err != nil {
		return err
	}
	if err := m.Proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut}); err != nil {
		return err
	}
	if err := restoreEtcd(r); err != nil {
		return err
	}
	err = r.untilErr(func() error {
		now, err := r.newest(m)
		if err == nil && now < was+50 {
			err = fmt.Errorf("resourceVersion %d, want %d", now, was+50)
		}
		return err
	})
	return errors.Join(err, m.Proxy.Set(tcpproxy.Mode{}))
}

// newest is the member's resourceVersion.
func (r *rig) newest(m *member) (n int, err error) {
	list, err := m.Client().CoreV1().ConfigMaps("default").List(r.t.Context(), metav1.ListOptions{Limit: 1})
	if err == nil {
		_, err = fmt.Sscan(list.ResourceVersion, &n)
	}
	return n, err
}
