package kube_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/kube"
)

func TestSmoke(t *testing.T) {
	f, err := kube.Start(t.Context(), kube.Options{Members: 1, NoHub: true, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	s := time.Now()
	if err := kube.BulkPods(t.Context(), f.Members[0], 2000, kube.BulkOptions{}); err != nil {
		f.WriteLogs(os.Stderr)
		t.Fatal(err)
	}
	t.Log(time.Since(s))
	s = time.Now()
	if err := kube.BulkPods(t.Context(), f.Members[0], 20000, kube.BulkOptions{Prefix: "direct", Direct: true}); err != nil {
		f.WriteLogs(os.Stderr)
		t.Fatal(err)
	}
	t.Log(time.Since(s))
	for _, ns := range []string{"bulk-4", "direct-4"} {
		l, err := f.Members[0].Client().CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(l.Items[3])
		t.Log(len(b), string(b))
	}
}
