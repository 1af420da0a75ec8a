package shards_test

import (
	"os"
	"testing"

	"k8s.io/klog/v2"

	"federator.dev/federator/test/kube"
)

// shared is a hub that records writes.
var shared = kube.Shared{Options: kube.Options{Audit: true}}

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{})
	os.Exit(shared.Main(m))
}
