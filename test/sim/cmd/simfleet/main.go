// Simfleet serves simulated members for as long as it runs and writes a kubeconfig with
// one context per member. It prints READY when the file is there, and then does what lines
// of its standard input say: see commands.
//
//	go run ./test/sim/cmd/simfleet --members 20 --pods 23500 --nodes 160 --kubeconfig fleet.kubeconfig
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/test/sim"
	"federator.dev/federator/test/sim/siblings"
)

type options struct {
	members, pods, nodes int
	first                int
	kinds, streams       int
	kubeconfig, corpus   string
	seed                 uint64
	churn                float64
	stamp                bool
	bookmark             time.Duration
}

func main() {
	var o options
	flags := pflag.NewFlagSet("simfleet", pflag.ExitOnError)
	flags.IntVar(&o.members, "members", 3, "number of members")
	flags.IntVar(&o.first, "first", 0, "number of the first, by which members are named")
	flags.IntVar(&o.pods, "pods", 1000, "pods per member")
	flags.IntVar(&o.nodes, "nodes", 10, "nodes per member")
	flags.IntVar(&o.kinds, "kinds", 0, "kinds that each member serves besides Event and Lease, all but a few of them empty; the built-in ones when 0")
	flags.IntVar(&o.streams, "streams", 0, "streams that a connection may have; kube-apiserver's 100 when 0")
	flags.DurationVar(&o.bookmark, "bookmark", time.Minute, "between the bookmarks of a watch")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "simfleet.kubeconfig", "file to write")
	flags.StringVar(&o.corpus, "corpus", "../shared/corpus", "directory of real objects; a small sample where it is absent")
	flags.Uint64Var(&o.seed, "seed", 1, "what the objects follow from")
	flags.Float64Var(&o.churn, "churn", 0, "pod updates per second, over all members")
	flags.BoolVar(&o.stamp, "stamp", false, "label each updated pod with its time, "+siblings.Stamp)
	_ = flags.Parse(os.Args[1:]) // ExitOnError
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "simfleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, in io.Reader, out io.Writer) error {
	if o.members < 1 || o.pods < 0 || o.nodes < 0 || o.churn < 0 {
		return errors.New("numbers must not be negative, and one member is the least")
	}
	kinds, err := kindsOf(o.kinds)
	if err != nil {
		return err
	}
	fleet, err := sim.New(sim.Options{
		Kinds: kinds, Streams: o.streams, Bookmark: o.bookmark, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer fleet.Close()
	f, corpus, err := start(fleet, o)
	if err != nil {
		return err
	}
	if err := f.writeKubeconfig(o.kubeconfig); err != nil {
		return err
	}
	debug.FreeOSMemory() // so that what watches cost can be told from what made the objects
	f.idle = measure()
	fmt.Fprintf(out, "READY %d members, %d pods and %d nodes each, real objects: %v, kubeconfig %s\n",
		o.members, o.pods, o.nodes, corpus.Real(), o.kubeconfig)
	return f.serve(ctx, in, out)
}

// start adds the members and their objects.
func start(members *sim.Fleet, o options) (*fleet, *siblings.Corpus, error) {
	f := &fleet{Fleet: members, members: make([]*sim.Member, o.members), pods: make([]*siblings.Pods, o.members), stamp: o.stamp, churned: o.churn}
	corpus := siblings.Open(o.corpus)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range o.members {
		group.Go(func() (err error) {
			if f.members[i], err = members.Add(fmt.Sprintf("member-%d", o.first+i)); err != nil {
				return err
			}
			f.pods[i], err = load(f.members[i], corpus, o, o.seed+uint64(o.first+i))
			return err
		})
	}
	return f, corpus, group.Wait()
}

func (f *fleet) writeKubeconfig(path string) error {
	config := clientcmdapi.NewConfig()
	for _, m := range f.members {
		m.AddTo(config)
	}
	config.CurrentContext = f.members[0].Name()
	return clientcmd.WriteToFile(*config, path)
}

// kindsOf returns the kinds of a member: n besides Event and Lease, custom ones where
// there are not as many built-in ones.
func kindsOf(n int) ([]sim.Kind, error) {
	builtin := sim.BuiltinKinds()
	switch {
	case n < 0:
		return nil, errors.New("the number of kinds must not be negative")
	case n == 0:
		return builtin, nil
	}
	var kinds, needed []sim.Kind
	for _, k := range builtin {
		switch k.Kind {
		case "Event", "Lease", "Namespace", "Pod", "Node", "CustomResourceDefinition":
			needed = append(needed, k)
		default:
			kinds = append(kinds, k)
		}
	}
	n -= len(needed) - 2
	if n < 0 {
		return nil, fmt.Errorf("a member serves at least %d kinds besides Event and Lease", len(needed)-2)
	}
	for i := len(kinds); i < n; i++ {
		name := fmt.Sprintf("Custom%d", i)
		kinds = append(kinds, sim.Kind{
			Group: fmt.Sprintf("group%d.sim.example.org", i/5), Kind: name, Resource: fmt.Sprintf("custom%ds", i),
			Versions: []string{"v1"}, Namespaced: true,
		})
	}
	return append(needed, kinds[:n]...), nil
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
