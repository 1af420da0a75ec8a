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
	"federator.dev/federator/pkg/persistence"
	"federator.dev/federator/pkg/tracing"
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
func (c contexts) Run(ctx context.Context, set func(clusterinformers.View)) error {
	set(clusterinformers.View{Members: c})
	<-ctx.Done()
	return nil
}

// follower is federator's ingest with an index, as serve wires it.
type follower struct {
	index   *aggregate.Index
	manager *clusterinformers.Manager
	loaded  persistence.Loaded // what was kept
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	store *persistence.Store // nil: nothing is kept
	leave context.CancelFunc // ends the store
	keeps sync.WaitGroup
}

// followOptions are how a follower differs from one that only reads.
type followOptions struct {
	dir      string // where the index is kept; "" for nowhere
	run      int    // number of the process that keeps it there, from 0
	audit    clusterinformers.Audit
	required []aggregate.Kind
	agents   clusterinformers.Agents // of members that are reached by them
	tracer   *tracing.Tracer         // nil: nothing is traced
}

func follow(ctx context.Context, members contexts, kinds ...string) (*follower, error) {
	return followAs(ctx, followOptions{}, members, kinds...)
}

func followAs(ctx context.Context, o followOptions, members contexts, kinds ...string) (*follower, error) {
	first := aggregate.Revision(o.run)<<48 + 1
	index, err := aggregate.New(aggregate.Options{
		Revisions: aggregate.Range{First: first, End: first + 1<<48}, // whatever a run takes
		Fields:    map[aggregate.Kind][]string{"Pod": {"spec.nodeName", "status.phase"}},
		Hold:      o.dir != "",
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
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	m, err := clusterinformers.New(clusterinformers.Options{
		Index: index, Sources: []clusterinformers.Source{members}, Kinds: rules, GiveUpAfter: time.Hour, Logger: log, Audit: o.audit, Agents: o.agents, Tracer: o.tracer,
	})
	if err != nil {
		return nil, err
	}
	m.RequireKinds(o.required)
	f := &follower{index: index, manager: m}
	if o.dir != "" {
		if err := f.keep(ctx, o.dir, log); err != nil {
			return nil, err
		}
	}
	ctx, f.cancel = context.WithCancel(ctx)
	f.wg.Go(func() {
		if err := m.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "bench: manager:", err)
		}
	})
	f.wg.Go(func() { f.train(ctx) })
	return f, nil
}

// keep loads what is kept in a directory, and keeps the index there.
func (f *follower) keep(ctx context.Context, dir string, log *slog.Logger) (err error) {
	if f.store, err = persistence.Open(persistence.Options{Directory: dir, Form: f.manager.Form, Log: log}); err != nil {
		return err
	}
	if f.loaded, err = f.store.Load(ctx, f.index); err != nil {
		return errors.Join(err, f.store.Close())
	}
	f.manager.Adopt()
	ctx, f.leave = context.WithCancel(context.WithoutCancel(ctx)) // it has all that is committed until the manager ends
	f.keeps.Go(func() {
		if err := f.store.Run(ctx, f.index); err != nil {
			fmt.Fprintln(os.Stderr, "bench: persistence:", err)
		}
	})
	return nil
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
	if f.store == nil {
		return
	}
	f.leave()
	f.keeps.Wait()
	if err := f.store.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: persistence:", err)
	}
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
