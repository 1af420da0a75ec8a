package kube_test

import (
	"testing"
	"os"

	"federator.dev/federator/test/kube"
)

func TestSmoke(t *testing.T) {
	f, err := kube.Start(t.Context(), kube.Options{Members: 3, Progress: os.Stderr, SharedEtcd: os.Getenv("SHARED") != "", Controllers: os.Getenv("KCM") != ""})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Stop(); err != nil { t.Fatal(err) }
}
