package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/kube/assets"
)

// startControllers starts what makes a cluster's objects move, each with an
// identity of its own. They go around the proxy, as in a real control plane.
func (f *Fleet) startControllers(ctx context.Context, c *ControlPlane) error {
	identity := func(file, user string, groups ...string) (string, error) {
		cred, err := c.IssueCert(user, 24*time.Hour, groups...)
		if err != nil {
			return "", err
		}
		path := filepath.Join(c.Dir, file+".kubeconfig")
		return path, os.WriteFile(path, c.kubeconfig(c.addr, cred), 0o600)
	}
	manager, err1 := identity("kube-controller-manager", "system:kube-controller-manager")
	scheduler, err2 := identity("kube-scheduler", "system:kube-scheduler")
	kwok, err3 := identity("kwok", "kwok", "system:masters")
	stages, err4 := filepath.Glob(filepath.Join(f.assets.Stages(), "*.yaml"))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	slices.Sort(stages)
	kwokArgs := []string{"--kubeconfig=" + kwok, "--manage-all-nodes=true", "--cidr=" + podRange}
	for _, s := range stages {
		kwokArgs = append(kwokArgs, "--config="+s)
	}
	servingCert := "--tls-cert-file=" + c.pki.file("apiserver.crt")
	servingKey := "--tls-private-key-file=" + c.pki.file("apiserver.key")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		c.ControllerManager, err = f.startController(ctx, c, assets.ControllerManager, "https", []string{
			"--kubeconfig=" + manager, "--authentication-kubeconfig=" + manager, "--authorization-kubeconfig=" + manager,
			"--leader-elect=false", "--use-service-account-credentials=true",
			"--service-account-private-key-file=" + c.pki.file("service-accounts.key"),
			"--root-ca-file=" + c.pki.file("ca.crt"),
			// The Ready of a pod does not come back when kwok was kept waiting by a busy machine.
			"--node-monitor-grace-period=1h",
			"--kube-api-qps=200", "--kube-api-burst=400", "--bind-address=127.0.0.1",
			servingCert, servingKey,
		}, "--secure-port=%d")
		return err
	})
	g.Go(func() (err error) {
		c.Scheduler, err = f.startController(ctx, c, assets.Scheduler, "https", []string{
			"--kubeconfig=" + scheduler, "--authentication-kubeconfig=" + scheduler, "--authorization-kubeconfig=" + scheduler,
			"--leader-elect=false", "--kube-api-qps=200", "--kube-api-burst=400", "--bind-address=127.0.0.1",
			servingCert, servingKey,
		}, "--secure-port=%d")
		return err
	})
	g.Go(func() (err error) {
		c.Kwok, err = f.startController(ctx, c, assets.Kwok, "http", kwokArgs, "--server-address=127.0.0.1:%d")
		return err
	})
	return g.Wait()
}

// startController starts a binary and waits for its /healthz at the port that
// portFlag is given.
func (f *Fleet) startController(ctx context.Context, c *ControlPlane, binary, scheme string, args []string, portFlag string) (*Process, error) {
	return f.startProcess(ctx, 1, func(ports []int) *Process {
		return &Process{
			name: c.Name + "/" + binary, path: f.assets.Binary(binary), log: filepath.Join(c.Dir, binary+".log"),
			args: append(slices.Clone(args), fmt.Sprintf(portFlag, ports[0])),
			ready: func(ctx context.Context) error {
				return probe(ctx, c.http, scheme+"://"+localAddr(ports[0])+"/healthz")
			},
		}
	})
}

// addNodes registers nodes that kwok keeps alive, spread over three zones, and
// waits until they are ready.
func (c *ControlPlane) addNodes(ctx context.Context, n int) error {
	nodes := c.client.CoreV1().Nodes()
	for i := range n {
		name := fmt.Sprintf("%s-node-%d", c.Name, i+1)
		_, err := nodes.Create(ctx, newNode(name, i), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create node: %w", err)
		}
	}
	return poll(ctx, "ready nodes", func(ctx context.Context) (bool, error) {
		list, err := nodes.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Items, func(n corev1.Node) bool { return !nodeReady(n) }), nil
	})
}

func newNode(name string, i int) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("500"), corev1.ResourceEphemeralStorage: resource.MustParse("200Gi"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				corev1.LabelTopologyZone: fmt.Sprintf("zone-%c", 'a'+i%3), corev1.LabelTopologyRegion: "region-1",
				corev1.LabelInstanceTypeStable: "m5.4xlarge", "type": "kwok",
			},
		},
		Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.244.%d.0/24", i%256)},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: "amd64", OperatingSystem: "linux", OSImage: "Debian GNU/Linux 12 (bookworm)",
				KernelVersion: "6.1.0-28-amd64", KubeletVersion: "v1.36.3", ContainerRuntimeVersion: "containerd://2.1.4",
			},
		},
	}
}

func nodeReady(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// poll calls done until it reports true, which makes its error the result, or
// until ctx ends or a minute has passed; the latest error is part of the result
// then.
func poll(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done(ctx)
		if ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}
