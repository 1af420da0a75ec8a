package main

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
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

func TestRun_RejectsInvalidNumbers(t *testing.T) {
	for _, o := range []options{{members: 0}, {members: 1, pods: -1}, {members: 1, churn: -1}} {
		if err := run(t.Context(), o, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
