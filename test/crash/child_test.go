package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"federator.dev/federator/internal/election"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// childEnv is the environment variable with the childConfig of a process.
const childEnv = "FEDERATOR_CRASH_CHILD"

// childConfig says where a process corrects.
type childConfig struct {
	Hub     string   // a file with a kubeconfig
	Members []string // likewise, in the order of members
}

// leadingLine is printed by a process that has become the leader.
const leadingLine = "leading"

// The times of the lease: shorter than those of federator.
const (
	leaseDuration = time.Second // the shortest that a Lease can have
	leaseRenew    = 700 * time.Millisecond
	leaseRetry    = 100 * time.Millisecond
)

// members are the members, each a control plane of its own; all but one policy correct the first.
var members = []string{"fleet/eu-1", "fleet/us-1"}

const member = "fleet/eu-1"

// runChild corrects until its input ends, as it does when its parent is gone.
func runChild(text string) error {
	var a childConfig
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	hub, err := connect(a.Hub)
	if err != nil {
		return err
	}
	p := &process{members: map[string]kubernetes.Interface{}, maps: map[string]corelisters.ConfigMapLister{}, changed: trigger.New()}
	for n, name := range members {
		if p.members[name], err = connect(a.Members[n]); err != nil {
			return err
		}
	}
	p.lock = election.Track(&resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "federator"}, Client: hub.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprint(os.Getpid(), " ", time.Now().UnixNano())},
	}, leaseRenew)
	p.dispatcher, err = remediate.New(remediate.Options{
		Clients: p, Hub: hub.CoreV1().RESTClient(), Lease: p.lock.Lease, KeepSecretValues: true, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Health: p.health, Changed: func(string) { p.changed.Fire() }, Retention: time.Second,
	})
	if err != nil {
		return err
	}
	return p.run(ctx, hub)
}

func connect(file string) (*kubernetes.Clientset, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return kubernetes.NewForConfig(cfg)
}

type process struct {
	members    map[string]kubernetes.Interface
	maps       map[string]corelisters.ConfigMapLister // of members
	wishes     corelisters.ConfigMapLister            // of the hub
	lock       *election.Lock
	dispatcher *remediate.Dispatcher
	changed    trigger.Trigger
}

// Client implements remediate.ClientFactory.
func (p *process) Client(of string, kind policy.Kind, _ string) (*remediate.Client, error) {
	if p.members[of] == nil || kind != "ConfigMap" {
		return nil, fmt.Errorf("member %q: %s is not served", of, kind)
	}
	return &remediate.Client{REST: p.members[of].CoreV1().RESTClient(), Resource: "configmaps", Namespaced: true}, nil
}

func (p *process) elect(ctx context.Context) error {
	for ctx.Err() == nil {
		le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: p.lock, LeaseDuration: leaseDuration, RenewDeadline: leaseRenew, RetryPeriod: leaseRetry, ReleaseOnCancel: true, Name: "federator",
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					p.changed.Fire()
					fmt.Fprintln(os.Stdout, leadingLine)
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return err
		}
		le.Run(ctx)
	}
	return context.Cause(ctx)
}

// run corrects until the context ends.
func (p *process) run(ctx context.Context, hub kubernetes.Interface) error {
	var synced []cache.InformerSynced
	watch := func(of kubernetes.Interface) (corelisters.ConfigMapLister, func(), error) {
		factory := informers.NewSharedInformerFactory(of, 0)
		maps := factory.Core().V1().ConfigMaps()
		_, err := maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { p.changed.Fire() }, UpdateFunc: func(any, any) { p.changed.Fire() }, DeleteFunc: func(any) { p.changed.Fire() },
		})
		synced = append(synced, maps.Informer().HasSynced)
		factory.Start(ctx.Done())
		return maps.Lister(), factory.Shutdown, err
	}
	lister, shutdown, err := watch(hub)
	defer shutdown()
	if p.wishes = lister; err != nil {
		return err
	}
	for _, name := range members {
		lister, shutdown, err := watch(p.members[name])
		defer shutdown()
		if p.maps[name] = lister; err != nil {
			return err
		}
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { _ = p.elect(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	work.Go(func() { _ = p.dispatcher.Run(ctx) })
	for {
		all, err := p.maps[member].ConfigMaps(namespace).List(labels.Everything())
		if err != nil {
			return err
		}
		err = p.dispatcher.SetIntents(binding, remediate.RolloutSpec{}, remediate.Totals{Fleet: len(all)}, evaluate(all), true)
		if err = errors.Join(err, p.setLasting()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		}
	}
}

// binding is the policy without limits. It comes last by name: those before it are not kept
// waiting by all that it has to write.
const binding = "writes"

// violationKinds are the prefixes of objects' names, before a dash: how each is corrected.
var violationKinds = []string{"merge", "json", "apply", "drop", "want"}

// evaluate is the policy: it returns the intents for the objects that violate it.
func evaluate(all []*corev1.ConfigMap) []remediate.Intent {
	there := map[string]bool{}
	for _, m := range all {
		there[m.Name] = true
	}
	var intents []remediate.Intent
	for _, m := range all {
		sort, id, _ := strings.Cut(m.Name, "-")
		target := policy.Ref{Member: member, Kind: "ConfigMap", Namespace: namespace, Name: m.Name}
		i := remediate.Intent{
			Binding: binding, Package: "acme.crash", Message: "it is wrong", Revision: 1, Subject: policy.Subject{Ref: target},
			APIVersion: "v1", UID: string(m.UID), ResourceVersion: m.ResourceVersion,
		}
		good := m.Data["state"] == "good"
		switch {
		case sort == "merge" && !good:
			i.Remedy = policy.Remedy{Action: "patch", Patch: json.RawMessage(`{"data":{"state":"good"}}`)}
		case sort == "json" && !good:
			i.Remedy = policy.Remedy{Action: "patch", Patch: json.RawMessage(`[{"op":"add","path":"/data/state","value":"good"}]`)}
		case sort == "apply" && !good:
			i.Remedy = policy.Remedy{Action: "apply", Object: json.RawMessage(`{"apiVersion":"v1","data":{"state":"good"}}`)}
		case sort == "drop":
			i.Remedy = policy.Remedy{Action: "delete"}
		case sort == "want" && !there["made-"+id]:
			target.Name, i.UID, i.ResourceVersion = "made-"+id, "", ""
			i.Remedy = policy.Remedy{Action: "apply", Object: json.RawMessage(`{"apiVersion":"v1","data":{"state":"good"}}`)}
		default:
			continue
		}
		i.Remedy.Target = target
		intents = append(intents, i)
	}
	return intents
}
