package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"

	"federator.dev/federator/charts"
	"federator.dev/federator/test/git"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/assets"
)

//go:embed files
var files embed.FS

// file is the text of a file of the demo's.
func file(name string) string {
	text, err := files.ReadFile("files/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// app is a Deployment of the shop.
type app struct {
	Name, Tier string
	Replicas   int
	Privileged bool
}

// members are the clusters, and what is special in each: a host that two of them
// serve, an app with a single replica, a privileged one.
var members = []struct {
	Name, Region, Host string
	Apps               []app
	NAT                bool // the hub cannot reach it, and has no credentials of it
}{
	{"eu-1", "eu", "shop.example.com", shop(), false},
	{"us-1", "us", "shop.example.com", append(shop()[1:], app{Name: "cart", Tier: "critical", Replicas: 1}), false},
	{"ap-1", "ap", "shop.example.jp", append(shop(), app{Name: "debug", Tier: "none", Replicas: 1, Privileged: true}), true},
}

func shop() []app {
	return []app{
		{Name: "cart", Tier: "critical", Replicas: 2},
		{Name: "search", Tier: "critical", Replicas: 2},
		{Name: "payments", Tier: "critical", Replicas: 2},
		{Name: "web", Tier: "critical", Replicas: 3},
	}
}

// boot starts the fleet and federator. What stop ends is joined, and stop is never nil.
func (d *demo) boot(ctx context.Context) (stop func() error, err error) {
	// The clusters outlive an interrupt, so that federator ends before them.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	watched := context.AfterFunc(ctx, end)
	stop = func() (err error) {
		err = errors.Join(d.page.stop(), d.agent.stop())
		if d.federator != nil {
			err = errors.Join(err, d.federator.stop())
		}
		if d.fleet != nil {
			err = errors.Join(err, d.fleet.Stop())
		}
		end()
		return err
	}
	bin := filepath.Join(d.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return stop, err
	}
	d.say("Building federator, kubectl and what clusters are made of; the first time takes a while.")
	if err := buildFederator(ctx, filepath.Join(bin, "federator")); err != nil {
		return stop, err
	}
	d.say("Booting a hub and three members: etcd, kube-apiserver, controllers, scheduler and kwok each.")
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		tools, err := assets.Ensure(gctx, assets.Options{Progress: d.out}, assets.Kubectl)
		if err != nil {
			return err
		}
		return os.Symlink(tools.Binary(assets.Kubectl), filepath.Join(bin, "kubectl"))
	})
	g.Go(func() (err error) {
		d.fleet, err = kube.Start(life, kube.Options{Members: len(members), Controllers: true, Nodes: 1, Dir: filepath.Join(d.dir, "clusters"), Progress: d.out})
		return err
	})
	err = g.Wait()
	if err == nil && !watched() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return stop, err
	}
	d.say("Deploying a shop on each, and registering two of them as Clusters on the hub. The third is behind NAT.")
	g, gctx = errgroup.WithContext(ctx)
	g.Go(func() error { return d.prepareHub(gctx) })
	for i := range members {
		g.Go(func() error { return d.join(gctx, i) })
	}
	g.Go(d.prepareRepo)
	if err := g.Wait(); err != nil {
		return stop, err
	}
	d.federator, err = startFederator(ctx, d.dir, filepath.Join(bin, "federator"))
	return stop, err
}

// prepareHub installs federator's CRDs and what else it needs of a hub.
func (d *demo) prepareHub(ctx context.Context) error {
	root, err := d.root(ctx)
	if err != nil {
		return err
	}
	if err := d.fleet.Hub.InstallCRDs(ctx, filepath.Join(root, "charts/federator/crds")); err != nil {
		return err
	}
	if err := errors.Join(d.write("hub.yaml", d.fleet.Hub.Kubeconfig()), d.write("member.yaml", []byte(file("member.yaml")))); err != nil {
		return err
	}
	return errors.Join(d.fleet.Hub.Apply(ctx, []byte(file("hub.yaml"))), d.admit(ctx))
}

// admit makes users who may approve, and installs the admission policies of the chart, by which
// the hub proves who approves.
func (d *demo) admit(ctx context.Context) error {
	for _, name := range approvers {
		kubeconfig, err := d.fleet.Hub.KubeconfigFor(name, "platform")
		if err = errors.Join(err, d.write(name+".yaml", kubeconfig)); err != nil {
			return err
		}
	}
	policies, err := charts.Admission("kubernetes-admin") // as whom federator runs here
	err = errors.Join(err, d.fleet.Hub.Apply(ctx, []byte(file("people.yaml"))))
	for _, manifests := range policies {
		err = errors.Join(err, d.fleet.Hub.Apply(ctx, []byte(manifests)))
	}
	return err
}

// join deploys the shop on a member and registers it on the hub.
func (d *demo) join(ctx context.Context, n int) error {
	c, m := d.fleet.Members[n], members[n]
	var manifests bytes.Buffer
	if err := template.Must(template.New(m.Name).Parse(file("shop.yaml"))).Execute(&manifests, m); err != nil {
		return err
	}
	if err := c.Apply(ctx, manifests.Bytes()); err != nil {
		return err
	}
	if err := await(ctx, 50*time.Millisecond, func(ctx context.Context) error { return running(ctx, c) }); err != nil {
		return fmt.Errorf("the shop of %s: %w", m.Name, err)
	}
	if err := d.write(m.Name+".yaml", c.Kubeconfig()); err != nil || m.NAT {
		return err
	}
	return d.fleet.Hub.Register(ctx, kube.Cluster{
		Namespace: "fleet", Name: m.Name, Kubeconfig: c.Kubeconfig(), Labels: map[string]string{"region": m.Region},
	})
}

// prepareRepo makes the repository, with a policy that has a mistake.
func (d *demo) prepareRepo() (err error) {
	if d.repo, err = git.Init(filepath.Join(d.dir, "policies")); err != nil {
		return err
	}
	err = errors.Join(
		d.write("library.yaml", []byte(file("library.yaml"))),
		d.write("source.yaml", fmt.Appendf(nil, file("source.yaml"), d.repo.Dir)),
	)
	for _, name := range []string{"replicas.rego", "replicas_test.rego", "replicas.yaml"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(d.repo.Dir, name), []byte(file(name)), 0o644))
	}
	if err != nil {
		return err
	}
	return d.commit("Ask for replicas")
}

// write writes a file into the demo's directory.
func (d *demo) write(name string, text []byte) error {
	return os.WriteFile(filepath.Join(d.dir, name), text, 0o600)
}
