package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// simfleet starts simulated members in a process of their own and returns
// their kubeconfig.
func (b *bench) simfleet(ctx context.Context, args ...string) (kubeconfig string, stop func() error, err error) {
	bin := filepath.Join(b.dir, "simfleet")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "./test/sim/cmd/simfleet").CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("build simfleet: %w\n%s", err, out)
	}
	f, err := os.CreateTemp(b.dir, "simfleet-*.kubeconfig")
	if err != nil {
		return "", nil, err
	}
	if err := f.Close(); err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, bin, append([]string{"--kubeconfig", f.Name(), "--corpus", b.corpus}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = b.out
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error { return errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()) }
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "READY") {
			b.progress("   %s", lines.Text())
			return f.Name(), stop, nil
		}
	}
	return "", nil, errors.Join(errors.New("simfleet did not get ready"), stop())
}

// contexts is a source of the contexts of a kubeconfig.
type contexts []clusterinformers.Spec

func readContexts(path string) (contexts, error) {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	var specs contexts
	for name := range config.Contexts {
		one := *config
		one.CurrentContext = name
		if err := clientcmdapi.MinifyConfig(&one); err != nil {
			return nil, err
		}
		data, err := clientcmd.Write(one)
		if err != nil {
			return nil, err
		}
		specs = append(specs, clusterinformers.Spec{Name: "bench/" + name, UID: name, Kubeconfig: data, Trusted: true})
	}
	return specs, nil
}

// specOf describes a member that is reached as the config says.
func specOf(config *rest.Config) (clusterinformers.Spec, error) {
	data, err := kubeconfigOf(config)
	return clusterinformers.Spec{Name: "bench/member", UID: "member", Kubeconfig: data, Trusted: true}, err
}

func kubeconfigOf(config *rest.Config) ([]byte, error) {
	out := clientcmdapi.NewConfig()
	out.Clusters["member"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData, TLSServerName: config.ServerName}
	out.AuthInfos["member"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}
	out.Contexts["member"] = &clientcmdapi.Context{Cluster: "member", AuthInfo: "member"}
	out.CurrentContext = "member"
	return clientcmd.Write(*out)
}

// Run gives the members and waits.
func (c contexts) Run(ctx context.Context, set func([]clusterinformers.Spec)) error {
	set(c)
	<-ctx.Done()
	return nil
}

// follower is federator's ingest with an index, as serve wires it.
type follower struct {
	index   *aggregate.Index
	manager *clusterinformers.Manager
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

func follow(ctx context.Context, members contexts, kinds ...string) (*follower, error) {
	index, err := aggregate.New(aggregate.Options{
		Revisions: aggregate.Range{First: 1, End: 1 << 53}, // whatever a run takes
		Fields:    map[aggregate.Kind][]string{"Pod": {"spec.nodeName", "status.phase"}},
	})
	if err != nil {
		return nil, err
	}
	var rules []clusterinformers.KindRule
	for _, k := range kinds {
		rules = append(rules, clusterinformers.KindRule{Kind: k})
	}
	level := slog.LevelError
	if os.Getenv("BENCH_DEBUG") != "" {
		level = slog.LevelDebug
	}
	m, err := clusterinformers.New(clusterinformers.Options{
		Index: index, Sources: []clusterinformers.Source{members}, Kinds: rules, GiveUpAfter: time.Hour,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	})
	if err != nil {
		return nil, err
	}
	f := &follower{index: index, manager: m}
	ctx, f.cancel = context.WithCancel(ctx)
	f.wg.Go(func() {
		if err := m.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "bench: manager:", err)
		}
	})
	f.wg.Go(func() { f.train(ctx) })
	return f, nil
}

// train is the goroutine that serve gives to dictionaries.
func (f *follower) train(ctx context.Context) {
	tick, settle := time.NewTicker(200*time.Millisecond), time.NewTicker(time.Minute)
	defer tick.Stop()
	defer settle.Stop()
	for {
		select {
		case <-settle.C:
			f.index.Recompress(ctx.Done())
		case <-tick.C:
			if _, _, err := f.index.Train(ctx.Done()); err != nil {
				fmt.Fprintln(os.Stderr, "bench: train:", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (f *follower) stop() {
	f.cancel()
	f.wg.Wait()
}

// synced waits until all members are, and hold so many pods.
func (f *follower) synced(ctx context.Context, pods int) error {
	return poll(ctx, 10*time.Minute, func() bool {
		ok, _ := f.manager.Ready()
		return ok && f.pods() >= pods
	})
}

func (f *follower) pods() (n int) {
	n, _ = f.index.Snapshot().Count(aggregate.Query{Kind: "Pod"})
	return n
}

// trained waits until no kind needs a dictionary any more.
func (f *follower) trained(ctx context.Context) error {
	quiet := 0
	return poll(ctx, 5*time.Minute, func() bool {
		_, did, err := f.index.Train(ctx.Done())
		if did || err != nil {
			quiet = 0
		} else {
			quiet++
		}
		return quiet > 3
	})
}

func poll(ctx context.Context, limit time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
