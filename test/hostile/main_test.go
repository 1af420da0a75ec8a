package hostile

import (
	"io"
	"log"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"federator.dev/federator/test/kube"
)

// shared is the hub of the generator, with one member.
var shared = kube.Shared{Options: kube.Options{Members: 1}}

// patience is how long something may take that takes a moment on an idle machine.
const patience = 60 * time.Second

var configMaps = schema.GroupResource{Resource: "configmaps"}

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's own words are not the test's
	log.SetOutput(io.Discard)     // nor are net/http's, of members that are reached by it
	os.Exit(shared.Main(m))
}
