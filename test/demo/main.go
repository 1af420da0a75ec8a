// Command demo shows federator on a fleet of real clusters: a hub with Cluster
// API and three members with workloads; then a fourth joins, one loses its
// network and finds it again, and one leaves. It runs the real command, built
// from this tree, and stays up for exploring until it is interrupted.
//
// With DEMO=ci in the environment it ends after the show. Either way, anything
// that is not as it should be makes it fail.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/assets"
	"federator.dev/federator/test/kube/tcpproxy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := &demo{out: os.Stdout, started: time.Now(), bold: term.IsTerminal(int(os.Stdout.Fd()))}
	err := d.run(ctx, os.Getenv("DEMO") == "ci")
	interrupted := ctx.Err() != nil
	stop()
	if err != nil && !interrupted {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// namespace holds the fleet's Clusters on the hub.
const namespace = "fleet"

// members are the names and labels of the Clusters, in the order in which they
// join.
var members = []struct{ name, region, env string }{
	{"eu-1", "eu", "prod"}, {"us-1", "us", "prod"}, {"ap-1", "ap", "staging"}, {"eu-2", "eu", "staging"},
}

// demo is the fleet and the federator that follows it.
type demo struct {
	out       io.Writer
	bold      bool // out is a terminal
	fleet     *kube.Fleet
	federator *federator
	kubectl   string // path
	started   time.Time
}

// run gives the show and, unless it is for ci, waits for ctx to end.
func (d *demo) run(ctx context.Context, ci bool) (err error) {
	d.say("Booting a hub and three members: real etcd, kube-apiserver, controllers, scheduler and kwok each.")
	d.fleet, err = kube.Start(ctx, kube.Options{Members: 3, Controllers: true, Progress: d.out})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.fleet.Stop()) }()
	tools, err := assets.Ensure(ctx, assets.Options{Progress: d.out}, assets.Kubectl)
	if err != nil {
		return err
	}
	d.kubectl = tools.Binary(assets.Kubectl)
	d.federator, err = buildFederator(ctx, d.fleet.Dir)
	if err != nil {
		return err
	}
	if err := d.federator.start(ctx, d.fleet.Hub.KubeconfigFile()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.federator.stop()) }()
	for _, act := range []func(context.Context) error{d.first, d.fourth, d.cut, d.leave} {
		if err := act(ctx); err != nil {
			return errors.Join(err, d.federator.complain())
		}
	}
	if ci {
		d.say("All is as it should be.")
		return nil
	}
	d.explore()
	select {
	case <-ctx.Done():
	case err := <-d.federator.ended:
		return errors.Join(err, d.federator.complain())
	}
	d.say("Stopping.")
	return nil
}

// say prints what happens next.
func (d *demo) say(format string, args ...any) {
	line := fmt.Sprintf("%5.1fs  ", time.Since(d.started).Seconds()) + fmt.Sprintf(format, args...)
	if d.bold {
		line = "\x1b[1m" + line + "\x1b[0m"
	}
	fmt.Fprintf(d.out, "\n%s\n", line)
}

// join deploys applications on a member and registers it on the hub.
func (d *demo) join(ctx context.Context, n int, apps int) error {
	c, m := d.fleet.Members[n], members[n]
	if err := kube.Workloads(ctx, c, apps); err != nil {
		return err
	}
	return d.fleet.Hub.Register(ctx, kube.Cluster{
		Namespace: namespace, Name: m.name, Kubeconfig: c.Kubeconfig(),
		Labels: map[string]string{"region": m.region, "env": m.env},
	})
}

// first has the first three members join.
func (d *demo) first(ctx context.Context) error {
	d.say("Deploying applications on the members and registering them as Clusters on the hub.")
	g, gctx := errgroup.WithContext(ctx)
	for n := range 3 {
		g.Go(func() error { return d.join(gctx, n, n+1) })
	}
	watching, done := context.WithCancel(ctx)
	defer done()
	g.Go(func() error {
		err := d.show(watching, d.all(0, 1, 2))
		done()
		return err
	})
	return g.Wait()
}

// fourth has one more member join.
func (d *demo) fourth(ctx context.Context) error {
	d.say("A fourth cluster is made and joins.")
	if _, err := d.fleet.AddMember(ctx); err != nil {
		return err
	}
	if err := d.join(ctx, 3, 1); err != nil {
		return err
	}
	return d.show(ctx, d.all(0, 1, 2, 3))
}

// cut takes a member's network away and gives it back.
func (d *demo) cut(ctx context.Context) error {
	d.say("The network to %s is cut: its objects stay, Stale, and nobody else notices.", members[1].name)
	if err := d.fleet.Members[1].Proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut}); err != nil {
		return err
	}
	if err := d.show(ctx, func(a answer) error {
		return errors.Join(a.is(members[1].name, "Disconnected"), a.stale(members[1].name), d.all(0, 2, 3)(a))
	}); err != nil {
		return err
	}
	d.say("And it is back: every watch goes on where it was, nothing is listed anew.")
	if err := d.fleet.Members[1].Proxy.Set(tcpproxy.Mode{}); err != nil {
		return err
	}
	return d.show(ctx, func(a answer) error { return errors.Join(d.all(0, 1, 2, 3)(a), a.relisted(members[1].name)) })
}

// leave has a member leave.
func (d *demo) leave(ctx context.Context) error {
	d.say("The Cluster %s is deleted from the hub: the member leaves with all its objects.", members[2].name)
	if err := d.fleet.Hub.Unregister(ctx, namespace, members[2].name); err != nil {
		return err
	}
	if err := d.show(ctx, func(a answer) error {
		if _, err := a.member(members[2].name); err == nil {
			return fmt.Errorf("%s is still there", members[2].name)
		}
		return d.all(0, 1, 3)(a)
	}); err != nil {
		return err
	}
	d.say("One member, kind by kind:")
	return d.federator.print(ctx, d.out, "members", members[0].name)
}

// all says that these members are followed and complete, with objects of
// enough kinds.
func (d *demo) all(numbers ...int) func(answer) error {
	return func(a answer) error {
		var errs []error
		for _, n := range numbers {
			errs = append(errs, a.complete(members[n].name))
		}
		return errors.Join(errs...)
	}
}

// explore tells what else there is to see.
func (d *demo) explore() {
	f := d.federator
	d.say("It is yours now. Ctrl-C ends everything.")
	fmt.Fprintf(d.out, `
  federator's command and its address, for another terminal:
    alias federator=%[1]s
    federator members --server %[2]s --watch
    federator members --server %[2]s -o wide
    federator members --server %[2]s %[3]s
    curl %[4]s/metrics

  the hub, where members are Clusters:
    alias kubectl=%[13]s
    export KUBECONFIG=%[5]s
    kubectl get clusters -A
    kubectl -n %[6]s patch cluster %[3]s --type merge -p '{"spec":{"paused":true}}'
    kubectl -n %[6]s delete cluster %[3]s

  the members %[3]s, %[7]s and %[8]s:
    kubectl --kubeconfig %[9]s get pods -A
    kubectl --kubeconfig %[9]s -n shop scale deployment web --replicas 10
    kubectl --kubeconfig %[10]s get all -A
    kubectl --kubeconfig %[11]s get all -A

  what federator logs: %[12]s
`, f.binary, f.admin, members[0].name, f.public, d.fleet.Hub.KubeconfigFile(), namespace, members[1].name, members[3].name,
		d.fleet.Members[0].KubeconfigFile(), d.fleet.Members[1].KubeconfigFile(), d.fleet.Members[3].KubeconfigFile(), f.logFile, d.kubectl)
}
