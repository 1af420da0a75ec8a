package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// figures are what a child process has measured.
type figures map[string]float64

var children = map[string]func(ctx context.Context, kubeconfig string, pods int) (figures, error){
	"heap-federator":      heapFederator,
	"heap-attacked":       heapAttacked,
	"heap-stock":          heapStock,
	"rss":                 rss,
	"sync-federator":      syncFederator,
	"sync-stock":          syncStock,
	"sync-typed":          syncTyped,
	"sync-typed-json":     syncTypedJSON,
	"watch-federator":     watchFederator,
	"watch-stock":         watchStock,
	"query-server":        queryServer,
	"export-server":       exportServer,
	"export":              exportCommand,
	"policy-reviews":      policyReviews,
	"policy-allocations":  policyAllocations,
	"gatekeeper-verdicts": gatekeeperReviews,
	"gatekeeper-memory":   gatekeeperMemory,
	"policy-full":         policyFull,
	"policy-delta":        policyDelta,
	"policy-flat":         policyFlat,
	"policy-shards":       policyShards,
	"policy-preview":      policyPreview,
	"policy-hostile":      policyHostile,
	"policy-time":         policyTime,
	"policy-queries":      policyQueries,
	"isolation":           isolation,
	"drain":               drain,
	"commit-kept":         commitKept,
	"commit-bare":         commitBare,
	"restart-bytes":       restartBytes,
	"history-on":          historyOn,
	"history-off":         historyOff,
	"audit-cost":          auditCostOf,
	"audit-rate":          auditRateOf,
	"lossy-far":           lossyFarEnd,
	"trace-off":           traceOff,
	"trace-again":         traceOff,
	"trace-on":            traceOn,
}

// runChild measures in this process and prints the figures. A profile of its CPU goes to
// a file, if one is named.
func runChild(ctx context.Context, what, profile string, args []string) (err error) {
	run, ok := children[what]
	if !ok || len(args) != 2 {
		return fmt.Errorf("no child %q with %d arguments", what, len(args))
	}
	pods, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	got, err := run(ctx, args[0], pods)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

// child measures in another process.
func (b *bench) child(ctx context.Context, what string, into *figures, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	profile := b.profiles
	if profile != "" {
		profile = filepath.Join(profile, what+".pprof")
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"-child", what, "-profiles", profile, "--"}, args...)...)
	cmd.Stderr = b.out
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	b.progress("   %s %s", what, bytes.TrimSpace(out))
	return json.Unmarshal(out, into)
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// cpuTime is what this process has used, in user mode and in the kernel.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memoryStatus returns the memory lines of the kernel's account of a process, in bytes.
func memoryStatus(dir string) (map[string]float64, error) {
	data, err := os.ReadFile(dir + "/status")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64); err == nil && strings.HasSuffix(rest, " kB") {
			out[name] = kb * 1024
		}
	}
	return out, nil
}
