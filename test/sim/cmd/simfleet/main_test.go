package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/sim/siblings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_FleetIsReadyAndChurns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, options{members: 2, pods: 20, nodes: 3, kubeconfig: file, seed: 1, churn: 100}, strings.NewReader(""), in)
		in.Close()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); !strings.HasPrefix(line, "READY 2 members") {
		t.Fatalf("printed %q, %v", line, err)
	}
	for _, name := range []string{"member-0", "member-1"} {
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) != 20 {
			t.Fatalf("%s has %d pods, %v", name, len(pods.Items), err)
		}
		if nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil || len(nodes.Items) != 3 {
			t.Errorf("%s has %d nodes, %v", name, len(nodes.Items), err)
		}
		w, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		if ev := <-w.ResultChan(); ev.Type != watch.Modified {
			t.Errorf("churn sent %s %v", ev.Type, ev.Object)
		}
		w.Stop()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRun_DoesWhatItsInputSays(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	o := options{members: 1, first: 5, pods: 20, nodes: 3, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), seed: 1, kinds: 50, stamp: true}
	in, tell := io.Pipe()
	printed, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, o, in, out) }()
	lines := bufio.NewScanner(printed)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "READY 1 members") {
		t.Fatalf("printed %q", lines.Text())
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	fmt.Fprintln(tell, "churn 50")
	ev := <-w.ResultChan()
	if pod, ok := ev.Object.(*corev1.Pod); !ok || pod.Labels[siblings.Stamp] == "" {
		t.Errorf("churn sent %s %v, which has no time", ev.Type, ev.Object)
	}
	fmt.Fprintln(tell, "stats")
	var got stats
	if lines.Scan(); json.Unmarshal(lines.Bytes(), &got) != nil || got.Watches != 1 || got.RSS == 0 || got.CPU == 0 || got.Reads != 1 {
		t.Errorf("stats are %q", lines.Text())
	}
	fmt.Fprintln(tell, "dance")
	if err := <-done; err == nil || !strings.Contains(err.Error(), "dance") {
		t.Errorf("a command that there is not: %v", err)
	}
	tell.Close()
}

func TestKindsOf_ServesAsManyAsAskedFor(t *testing.T) {
	for _, n := range []int{4, 10, 47, 100} {
		kinds, err := kindsOf(n)
		if err != nil || len(kinds) != n+2 {
			t.Errorf("%d kinds: %d, %v", n, len(kinds), err)
		}
	}
	for _, n := range []int{-1, 3} {
		if _, err := kindsOf(n); err == nil {
			t.Errorf("%d kinds were taken", n)
		}
	}
}

func TestRun_RejectsInvalidNumbers(t *testing.T) {
	for _, o := range []options{{members: 0}, {members: 1, pods: -1}, {members: 1, churn: -1}} {
		if err := run(t.Context(), o, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
