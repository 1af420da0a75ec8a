package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/kube"
)

// unbounded are audits that are asked for, as fast as they can be.
var unbounded = clusterinformers.Audit{Off: true, RequestsPerSecond: 1e6, FleetRequestsPerSecond: 1e6, BytesPerSecond: 1 << 40}

// The default intervals of audits. A scope is due, on average, after spreadOfInterval of its own.
const (
	auditInterval    = 15 * time.Minute
	auditFirstTier   = 2 * time.Minute
	spreadOfInterval = 0.675
)

// audited is what audits of all pods have come to.
type audited struct{ objects, requests, bytes float64 }

// auditPods audits all pods once.
func (f *follower) auditPods(ctx context.Context) (a audited, err error) {
	failed := f.manager.Audit(ctx, "", "Pod", func(r clusterinformers.AuditResult) {
		a.objects, a.requests, a.bytes = a.objects+float64(r.Objects), a.requests+float64(r.Requests), a.bytes+float64(r.Bytes)
		if r.Outcome != "equal" {
			err = errors.Join(err, fmt.Errorf("%s: %s %s", r.Member, r.Outcome, r.Message))
		}
	})
	return a, errors.Join(failed, err)
}

// auditCost measures what audits cost a real API server: for a member with few objects, and for the pods
// of a large one.
func auditCost(ctx context.Context, b *bench) (rows []row, err error) {
	rows, err = b.auditCostSmall(ctx)
	if err != nil {
		return rows, err
	}
	pods := b.n(20_000)
	fleet, err := kube.Start(ctx, kube.Options{Members: 1, NoHub: true})
	if err != nil {
		return rows, err
	}
	defer func() { err = errors.Join(err, fleet.Stop()) }()
	member := fleet.Members[0]
	if err := kube.BulkPods(ctx, member, pods, kube.BulkOptions{Direct: true}); err != nil {
		return rows, err
	}
	direct, err := kubeconfigOf(member.DirectRESTConfig())
	if err != nil {
		return rows, err
	}
	kubeconfig := filepath.Join(b.dir, "audited.kubeconfig")
	if err := os.WriteFile(kubeconfig, direct, 0o600); err != nil {
		return rows, err
	}
	var got figures
	if err := b.child(ctx, "audit-cost", &got, kubeconfig, strconv.Itoa(pods)); err != nil {
		return rows, err
	}
	each := got["audit"]
	share := 100 * each / (auditFirstTier.Seconds() * spreadOfInterval)
	return append(rows,
		lower("audit/cost_pods", "CPU-s", each, got["list"], fmt.Sprintf("API-server CPU of an audit of %d pods, %.0f requests, %.1f MB; baseline one list of the same, in pages, protobuf", pods, got["requests"], got["bytes"]/1e6)),
		row{Name: "audit/cost_pods_share", Unit: "% of a core", Value: share, Note: fmt.Sprintf("the same in the first tier, every 2 minutes or less, as where policies read pods; in the other tier %.3f; goal 1", 100*each/(auditInterval.Seconds()*spreadOfInterval))},
	), nil
}

// auditRounds is how often what is audited is audited.
const auditRounds = 5

// auditCostOf measures, in CPU time of the API server, audits and lists of pods.
func auditCostOf(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	f, err := followAs(ctx, followOptions{audit: unbounded}, members, "Pod")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := f.synced(ctx, pods); err != nil {
		return nil, err
	}
	began := time.Now()
	idle, err := serverCPU(ctx, config, func() error { return wait(ctx, 5*time.Second) })
	if err != nil {
		return nil, err
	}
	idle /= time.Since(began).Seconds()
	var a audited
	out := figures{}
	for name, f := range map[string]func() error{
		"audit": func() (err error) { a, err = f.auditPods(ctx); return err },
		"list":  func() error { return listPods(ctx, config, pods) },
	} {
		began := time.Now()
		cpu, err := serverCPU(ctx, config, func() error {
			for range auditRounds {
				if err := f(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		out[name] = (cpu - idle*time.Since(began).Seconds()) / auditRounds
	}
	out["requests"], out["bytes"] = a.requests, a.bytes
	return out, nil
}

// serverCPU is the CPU time, in seconds, that an API server takes while f runs.
func serverCPU(ctx context.Context, config *rest.Config, f func() error) (float64, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	read := func() (float64, error) {
		text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(line, "process_cpu_seconds_total "); ok {
				return strconv.ParseFloat(strings.TrimSpace(n), 64)
			}
		}
		return 0, errors.New("the API server does not say what time it has taken")
	}
	before, err := read()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := read()
	return after - before, err
}

// listPods reads all pods of a member in pages, and decodes them.
func listPods(ctx context.Context, config *rest.Config, pods int) error {
	config = rest.CopyConfig(config)
	config.ContentType, config.QPS = runtime.ContentTypeProtobuf, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	n, opts := 0, metav1.ListOptions{Limit: 500}
	for {
		page, err := client.CoreV1().Pods("").List(ctx, opts)
		if err != nil {
			return err
		}
		n += len(page.Items)
		if opts.Continue = page.Continue; opts.Continue == "" {
			break
		}
	}
	if n < pods {
		return fmt.Errorf("%d pods, want %d", n, pods)
	}
	return nil
}

// auditRate measures what audits cost federator.
func auditRate(ctx context.Context, b *bench) (rows []row, err error) {
	const members = 4
	pods := b.n(23_500)
	kubeconfig, stop, err := b.simfleet(ctx, "--members", strconv.Itoa(members), "--pods", strconv.Itoa(pods), "--nodes", "160")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var got figures
	if err := b.child(ctx, "audit-rate", &got, kubeconfig, strconv.Itoa(members*pods)); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("of 1,000,000 objects compared, %d members x %d pods, content of %.2f %%; %.0f B an object from the member", members, pods, 100*got["bodies"], got["bytes"])
	return []row{
		lower("audit/rate", "CPU-s", got["audit"], got["list"], note+"; baseline decoding typed lists of them, protobuf"),
		{Name: "audit/rate_memory", Unit: "MiB", Value: (got["peak"] - got["before"]) / mib, Note: fmt.Sprintf("peak RSS during audits of all members at once, above the %.0f MiB before, GOGC=%d; list and decoding %.0f above", got["before"]/mib, gcPercent, (got["list-peak"]-got["list-before"])/mib)},
	}, nil
}

func auditRateOf(ctx context.Context, kubeconfig string, pods int) (out figures, err error) {
	debug.SetGCPercent(gcPercent)
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	f, err := followAs(ctx, followOptions{audit: unbounded}, members, "Pod")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := errors.Join(f.synced(ctx, pods), f.trained(ctx)); err != nil {
		return nil, err
	}
	var all audited
	out = figures{}
	audit := func() error {
		for range auditRounds {
			a, err := f.auditPods(ctx)
			if err != nil {
				return err
			}
			all.objects, all.requests, all.bytes = all.objects+a.objects, all.requests+a.requests, all.bytes+a.bytes
		}
		return nil
	}
	cpu, err := accounted(out, "", audit)
	if err != nil {
		return nil, err
	}
	out["audit"], out["bytes"] = cpu/all.objects*1e6, all.bytes/all.objects
	out["bodies"] = auditRounds * float64(len(members)) * auditSample / all.objects
	cpu, err = accounted(out, "list-", func() error { return listAll(ctx, kubeconfig) })
	if err != nil {
		return nil, err
	}
	out["list"] = cpu / float64(pods) * 1e6
	return out, nil
}

// auditSample is of how many objects of a kind an audit compares the content.
const auditSample = 50

// accounted returns the CPU time that this process takes while f runs, and notes its memory before and at most.
func accounted(out figures, prefix string, f func() error) (cpu float64, err error) {
	heap()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak is that from here on
		return 0, err
	}
	status, err := memoryStatus("/proc/self")
	if err != nil {
		return 0, err
	}
	out[prefix+"before"] = status["VmRSS"]
	before := cpuTime()
	if err := f(); err != nil {
		return 0, err
	}
	cpu = (cpuTime() - before).Seconds()
	if status, err = memoryStatus("/proc/self"); err != nil {
		return 0, err
	}
	out[prefix+"peak"] = status["VmHWM"]
	return cpu, nil
}

// listAll lists and decodes the pods of all members.
func listAll(ctx context.Context, kubeconfig string) error {
	all, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return err
	}
	for name := range all.Contexts {
		config, err := clientcmd.NewNonInteractiveClientConfig(*all, name, nil, nil).ClientConfig()
		if err != nil {
			return err
		}
		if err := listPods(ctx, config, 0); err != nil {
			return err
		}
	}
	return nil
}
