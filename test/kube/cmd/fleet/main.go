// Command fleet keeps a fleet of real control planes running until it is
// interrupted, and prints the kubeconfigs of the hub and the members.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"federator.dev/federator/test/kube"
)

type config struct {
	members   int
	kcm       bool
	workloads int
	namespace string
	dir       string
}

func main() {
	var c config
	flag.IntVar(&c.members, "members", 3, "number of members")
	flag.BoolVar(&c.kcm, "kcm", false, "run kube-controller-manager, kube-scheduler and kwok on members and hub")
	flag.BoolFunc("workloads", "deploy an application on each member, or `N` with --workloads=N", func(v string) (err error) {
		if v == "true" {
			v = "1"
		}
		c.workloads, err = strconv.Atoi(v)
		return err
	})
	flag.StringVar(&c.namespace, "namespace", "fleet", "hub namespace to register the members in; empty registers none")
	flag.StringVar(&c.dir, "dir", "", "directory to keep data and logs in (default: a temporary one, removed at the end)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, c, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config, stdout, stderr io.Writer) (err error) {
	f, err := kube.Start(ctx, kube.Options{
		Members: c.members, Controllers: c.kcm, HubControllers: c.kcm, Dir: c.dir, Progress: stderr,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	g, groupCtx := errgroup.WithContext(ctx)
	for i, m := range f.Members {
		g.Go(func() error {
			if c.workloads > 0 {
				if err := kube.Workloads(groupCtx, m, c.workloads); err != nil {
					return err
				}
			}
			if c.namespace == "" {
				return nil
			}
			return f.Hub.Register(groupCtx, kube.Cluster{
				Namespace: c.namespace, Name: m.Name, Kubeconfig: m.Kubeconfig(),
				Labels: map[string]string{"region": []string{"eu", "us", "ap"}[i%3]},
			})
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil // interrupted
		}
		return err
	}
	if err := printFleet(stdout, f, c.namespace); err != nil {
		return err
	}
	<-ctx.Done()
	fmt.Fprintln(stderr, "fleet: stopping")
	return nil
}

// printFleet prints where everything is.
func printFleet(w io.Writer, f *kube.Fleet, namespace string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CLUSTER\tON THE HUB\tKUBECONFIG")
	fmt.Fprintf(t, "%s\t-\t%s\n", f.Hub.Name, f.Hub.KubeconfigFile())
	for _, m := range f.Members {
		on := "-"
		if namespace != "" {
			on = namespace + "/" + m.Name
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", m.Name, on, m.KubeconfigFile())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nCtrl-C stops the fleet.")
	return err
}
