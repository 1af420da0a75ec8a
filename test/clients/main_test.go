package clients

import (
	"os"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"federator.dev/federator/test/kube"
)

// shared is the hub, with the members.
var shared = kube.Shared{Options: kube.Options{Members: len(sites)}}

// patience is how long something may take that takes a moment on an idle machine.
const patience = 60 * time.Second

// logged is what client-go logs.
var logged sink

func TestMain(m *testing.M) {
	klog.SetLogger(logged.logger())
	log.SetLogger(logged.logger())
	os.Exit(shared.Main(m))
}
