// Simfleet serves simulated members for as long as it runs and writes a kubeconfig with
// one context per member. It prints READY when the file is there.
//
//	go run ./test/sim/cmd/simfleet --members 20 --pods 23500 --nodes 160 --kubeconfig fleet.kubeconfig
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/test/sim"
	"federator.dev/federator/test/sim/siblings"
)

type options struct {
	members, pods, nodes int
	kubeconfig, corpus   string
	seed                 uint64
	churn                float64
}

func main() {
	var o options
	flags := pflag.NewFlagSet("simfleet", pflag.ExitOnError)
	flags.IntVar(&o.members, "members", 3, "number of members")
	flags.IntVar(&o.pods, "pods", 1000, "pods per member")
	flags.IntVar(&o.nodes, "nodes", 10, "nodes per member")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "simfleet.kubeconfig", "file to write")
	flags.StringVar(&o.corpus, "corpus", "../shared/corpus", "directory of real objects; a small sample where it is absent")
	flags.Uint64Var(&o.seed, "seed", 1, "what the objects follow from")
	flags.Float64Var(&o.churn, "churn", 0, "pod updates per second, over all members")
	_ = flags.Parse(os.Args[1:]) // ExitOnError
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "simfleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	if o.members < 1 || o.pods < 0 || o.nodes < 0 || o.churn < 0 {
		return errors.New("numbers must not be negative, and one member is the least")
	}
	fleet, err := sim.New(sim.Options{Members: o.members, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	defer fleet.Close()
	corpus := siblings.Open(o.corpus)
	config := clientcmdapi.NewConfig()
	pods := make([]*siblings.Pods, o.members)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, m := range fleet.Members() {
		m.AddTo(config)
		group.Go(func() (err error) {
			pods[i], err = load(m, corpus, o, o.seed+uint64(i))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	config.CurrentContext = fleet.Members()[0].Name()
	if err := clientcmd.WriteToFile(*config, o.kubeconfig); err != nil {
		return err
	}
	fmt.Fprintf(out, "READY %d members, %d pods and %d nodes each, real objects: %v, kubeconfig %s\n",
		o.members, o.pods, o.nodes, corpus.Real(), o.kubeconfig)
	return churn(ctx, fleet.Members(), pods, o.churn)
}

func load(m *sim.Member, corpus *siblings.Corpus, o options, seed uint64) (*siblings.Pods, error) {
	pods, err := corpus.Pods(o.pods, o.nodes, seed)
	if err != nil {
		return nil, err
	}
	nodes, err := corpus.Nodes(o.nodes, seed)
	if err != nil {
		return nil, err
	}
	return pods, errors.Join(m.Load(podResource, pods), m.Load(schema.GroupResource{Resource: "nodes"}, nodes))
}

var podResource = schema.GroupResource{Resource: "pods"}

// churn updates pods at random, so many a second, until the context ends.
func churn(ctx context.Context, members []*sim.Member, pods []*siblings.Pods, perSecond float64) error {
	if perSecond == 0 || pods[0].Len() == 0 {
		<-ctx.Done()
		return nil
	}
	limit := rate.NewLimiter(rate.Limit(perSecond), 10)
	for n := 1; limit.Wait(ctx) == nil; n++ {
		i := rand.IntN(len(members))
		namespace, name := pods[i].Name(rand.IntN(pods[i].Len()))
		err := members[i].Modify(podResource, namespace, name, func(obj sim.Object) {
			siblings.Touch(obj.(*corev1.Pod), n)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
