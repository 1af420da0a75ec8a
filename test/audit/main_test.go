package audit

import (
	"io"
	"log"
	"os"
	"testing"

	"k8s.io/klog/v2"

	"federator.dev/federator/test/kube"
)

// shared is the member that all tests share.
var shared = kube.Shared{Options: kube.Options{Members: 1, NoHub: true}}

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's own words are not the test's
	log.SetOutput(io.Discard)     // nor are net/http's, of watches that the proxy ends
	os.Exit(shared.Main(m))
}
