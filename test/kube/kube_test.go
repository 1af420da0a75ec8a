package kube_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
)

// orphanEnv has the test binary start a fleet and wait to be killed.
const orphanEnv = "KUBE_TEST_START_AND_WAIT"

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		startAndWait()
	}
	goleak.VerifyTestMain(m)
}

// startAndWait never returns.
func startAndWait() {
	f, err := kube.Start(context.Background(), kube.Options{NoHub: true, Members: 1, Dir: os.Getenv(orphanEnv)})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	for _, p := range f.Processes() {
		fmt.Println(p.PID())
	}
	fmt.Println("ready")
	select {}
}

// client returns a client that leaves no connection behind.
func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	hc, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hc.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(config, hc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually fails unless done reports true within the time.
func eventually(t *testing.T, within time.Duration, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %s", what, within)
		}
	}
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func pids(f *kube.Fleet) []int {
	var all []int
	for _, p := range f.Processes() {
		all = append(all, p.PID())
	}
	return all
}

func TestStart_BootsFourControlPlanesInTwentySeconds(t *testing.T) {
	var progress bytes.Buffer
	start := time.Now()
	f, err := kube.Start(t.Context(), kube.Options{Members: 3, Progress: &progress})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	t.Logf("%s", progress.String())
	if !strings.Contains(progress.String(), "building") && took > 20*time.Second {
		t.Errorf("ready after %s", took)
	}
	if f.Hub == nil || len(f.Members) != 3 {
		t.Fatalf("hub %v, %d members", f.Hub, len(f.Members))
	}
	processes := pids(f)
	if len(processes) != 8 {
		t.Errorf("%d processes, want an etcd and an API server for each of four", len(processes))
	}
	for _, m := range f.Members {
		v, err := client(t, m.RESTConfig()).Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if v.GitVersion != "v1.36.3" {
			t.Errorf("%s runs %s", m.Name, v.GitVersion)
		}
	}
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range processes {
		if alive(pid) {
			t.Errorf("process %d outlived Stop", pid)
		}
	}
	if _, err := os.Stat(f.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want it gone", f.Dir, err)
	}
	if err := f.Members[0].APIServer.Start(t.Context()); err == nil {
		t.Error("a process started in a stopped fleet")
	}
}

func TestStart_StopsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f, err := kube.Start(ctx, kube.Options{NoHub: true, Members: 1})
	if err != nil {
		t.Fatal(err)
	}
	processes := pids(f)
	cancel()
	eventually(t, 10*time.Second, "end of all processes", func() bool {
		for _, pid := range processes {
			if alive(pid) {
				return false
			}
		}
		return true
	})
	if err := f.Stop(); err != nil { // waits for what the context began
		t.Error(err)
	}
}

func TestStart_CanceledLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := kube.Start(ctx, kube.Options{Members: 1, Dir: dir})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Start: %v", err)
	}
	if left := processesNaming(t, dir); len(left) != 0 {
		t.Errorf("left running: %q", left)
	}
}

func TestStart_ReportsTheLogOfAFailure(t *testing.T) {
	dir := t.TempDir()
	_, err := kube.Start(t.Context(), kube.Options{Members: 1, Dir: dir, APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("Start: %v; want the API server's own words", err)
	}
	if left := processesNaming(t, dir); len(left) != 0 {
		t.Errorf("left running: %q", left)
	}
}

func TestStart_KilledParentLeavesNoOrphans(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the children of a killed parent")
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphanEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for s := bufio.NewScanner(out); s.Scan(); {
		lines = append(lines, s.Text())
		if s.Text() == "ready" {
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if len(lines) != 3 {
		t.Fatalf("helper said %q, want two process ids and ready", lines)
	}
	eventually(t, 10*time.Second, "end of the orphans", func() bool { return len(processesNaming(t, dir)) == 0 })
}

// processesNaming returns the command lines that mention s.
func processesNaming(t *testing.T, s string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(s)) {
			found = append(found, string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
		}
	}
	return found
}

func TestOptions_SharedEtcdKeepsMembersApart(t *testing.T) {
	f := kube.StartTest(t, kube.Options{NoHub: true, Members: 2, SharedEtcd: true})
	if f.Members[0].Etcd != f.Members[1].Etcd || len(f.Processes()) != 3 {
		t.Errorf("%d processes, want one etcd for two API servers", len(f.Processes()))
	}
	ctx := t.Context()
	if err := kube.BulkPods(ctx, f.Members[0], 50, kube.BulkOptions{Direct: true}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Members[1].Client().CoreV1().Namespaces().Get(ctx, "bulk-1", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("namespace of one member read from the other: %v", err)
	}
}

func TestOptions_InvalidAreRejected(t *testing.T) {
	for _, o := range []kube.Options{{Members: -1}, {Nodes: -1}, {ClusterAPI: "v1alpha4"}, {HubLatency: -1}, {MemberLatency: -1}} {
		if f, err := kube.Start(t.Context(), o); err == nil {
			_ = f.Stop()
			t.Errorf("Start(%+v) succeeded", o)
		}
	}
	for _, text := range []string{"far", "1s,", "1s,2s,3s", "-1s"} {
		t.Setenv(kube.LatencyVariable, text)
		if f, err := kube.Start(t.Context(), kube.Options{NoHub: true}); err == nil {
			_ = f.Stop()
			t.Errorf("Start with %s=%s succeeded", kube.LatencyVariable, text)
		}
	}
}

func TestOptions_LatencyIsAddedToRequests(t *testing.T) {
	t.Setenv(kube.LatencyVariable, "20ms,150ms")
	f := kube.StartTest(t, kube.Options{Members: 1})
	for _, way := range []struct {
		c     *kube.ControlPlane
		least time.Duration
	}{{f.Hub.ControlPlane, 40 * time.Millisecond}, {f.Members[0], 300 * time.Millisecond}} {
		client, err := kubernetes.NewForConfig(way.c.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < way.least {
			t.Errorf("%s answered after %v", way.c.Name, took)
		}
	}
}

func TestFleet_AddMemberWithoutHub(t *testing.T) {
	f := kube.StartTest(t, kube.Options{NoHub: true})
	if f.Hub != nil || len(f.Members) != 0 {
		t.Fatalf("hub %v, %d members", f.Hub, len(f.Members))
	}
	m, err := f.AddMember(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "member-1" || len(f.Members) != 1 {
		t.Errorf("added %s, %d members", m.Name, len(f.Members))
	}
	if err := probe(t, m); err != nil {
		t.Error(err)
	}
}

// probe reads something through the member's proxy, for a second at most.
func probe(t *testing.T, m *kube.ControlPlane) error {
	t.Helper()
	config := m.RESTConfig()
	config.Timeout = time.Second
	_, err := client(t, config).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	return err
}
