package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/agent/hubside"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

// agentRig is a member with the command that is its agent, and federator's end of it in this process.
type agentRig struct {
	fleet  *kube.Fleet
	server *hubside.Server
	meter  *tcpproxy.Proxy // the only way between them, whose bytes are of TLS
	spec   clusterinformers.Spec
	pid    int
	stops  []func() error // in reverse
}

// startAgent starts a hub, a member and its agent.
func (b *bench) startAgent(ctx context.Context, o kube.Options) (r *agentRig, err error) {
	return b.startAgentOver(ctx, o, nil)
}

// detour is a way by which the agent connects: it listens here, and goes on to a port of the host.
type detour interface {
	host() string
	forward(port string) (net.Listener, error)
}

// startAgentOver starts a hub, a member and its agent, which connects by the detour, if there is one.
func (b *bench) startAgentOver(ctx context.Context, o kube.Options, by detour) (r *agentRig, err error) {
	r = &agentRig{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	o.Members = 1
	if r.fleet, err = kube.Start(ctx, o); err != nil {
		return nil, err
	}
	r.stops = append(r.stops, r.fleet.Stop)
	if err := r.fleet.Hub.InstallCRDs(ctx, "charts/federator/crds"); err != nil {
		return nil, err
	}
	if err := r.serve(ctx, by); err != nil {
		return nil, err
	}
	binary, err := b.measured(ctx)
	if err != nil {
		return nil, err
	}
	return r, b.runAgent(ctx, r, binary)
}

// stop ends all that was started.
func (r *agentRig) stop() (err error) {
	for i := len(r.stops) - 1; i >= 0; i-- {
		err = errors.Join(err, r.stops[i]())
	}
	r.stops = nil
	return err
}

// serve listens for agents.
func (r *agentRig) serve(ctx context.Context, by detour) error {
	host := "127.0.0.1"
	if by != nil {
		host = by.host()
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	r.server, err = hubside.New(hubside.Options{
		Hub: r.fleet.Hub.DirectRESTConfig(), Namespace: "default", Namespaces: []string{"default"}, Listener: listener,
		Hosts: []string{"127.0.0.1"}, Process: "bench", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = r.server.Run(ctx) })
	r.stops = append(r.stops, func() error { cancel(); running.Wait(); return failed })
	address := listener.Addr().String()
	if by != nil {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		near, err := by.forward(port)
		if err != nil {
			return err
		}
		r.stops = append(r.stops, near.Close)
		address = near.Addr().String()
	}
	if r.meter, err = tcpproxy.Listen(ctx, "127.0.0.1:0", address); err != nil {
		return err
	}
	r.stops = append(r.stops, r.meter.Close)
	return nil
}

// member creates the Member on the hub, and returns a token for its agent.
func (r *agentRig) member(ctx context.Context) (token string, err error) {
	client, err := dynamic.NewForConfig(r.fleet.Hub.DirectRESTConfig())
	if err != nil {
		return "", err
	}
	u, err := client.Resource(v1alpha1.Resource(v1alpha1.Members)).Namespace("default").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion().String(), "kind": "Member",
		"metadata": map[string]any{"name": "edge"}, "spec": map[string]any{"agent": map[string]any{}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	r.spec = clusterinformers.Spec{Name: "default/edge", UID: string(u.GetUID()), Agent: true}
	var failed error
	err = poll(ctx, time.Minute, func() bool { // once there is a CA
		token, failed = hubside.CreateToken(ctx, r.fleet.Hub.Client(), "default", r.spec.Name, r.spec.UID, time.Hour)
		return failed == nil
	})
	return token, errors.Join(err, failed)
}

// runAgent runs the command until it is connected.
func (b *bench) runAgent(ctx context.Context, r *agentRig, binary string) error {
	token, err := r.member(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(b.dir, "agent-")
	if err != nil {
		return err
	}
	kubeconfig, err := kubeconfigOf(r.fleet.Members[0].DirectRESTConfig())
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return err
	}
	var log bytes.Buffer
	cmd := exec.Command(binary, "agent", "--hub", r.meter.Addr(), "--kubeconfig", file, "--state-dir", dir)
	cmd.Env = append(os.Environ(), "FEDERATOR_AGENT_TOKEN="+token)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return err
	}
	r.pid = cmd.Process.Pid
	r.stops = append(r.stops, func() error { return errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()) })
	err = poll(ctx, time.Minute, func() bool {
		c, err := r.server.DialAgent(ctx, r.spec.Name, r.spec.UID)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	if err != nil {
		return fmt.Errorf("the agent does not connect: %w", err)
	}
	return nil
}

// received is how many bytes of TLS have come from the agent, and sent how many have gone to it.
func (r *agentRig) received() (received, sent int64) {
	s := r.meter.Stats()
	return s.Sent, s.Received // the agent is the client of the meter
}

// configOf is a client of the member, without limits of its own.
func (r *agentRig) configOf() *rest.Config {
	c := rest.CopyConfig(r.fleet.Members[0].DirectRESTConfig())
	c.QPS = -1
	return c
}

// memory is what a process has resident, in bytes: its own, and what is of files, which is the command itself.
func memory(pid int) (own, files float64, err error) {
	m, err := memoryStatus(fmt.Sprintf("/proc/%d", pid))
	return m["RssAnon"], m["RssFile"], err
}

// counted counts what is read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}
