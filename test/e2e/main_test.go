package e2e

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"federator.dev/federator/test/kube"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's own words are not the test's
	log.SetOutput(io.Discard)     // nor are net/http's, of members that are reached by it
	code := m.Run()
	if err := shared.stop(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience is how long something may take that takes a moment on an idle
// machine.
const patience = 60 * time.Second

// until polls check until it returns nil, and returns its last error when time
// is up.
func until(ctx context.Context, within time.Duration, check func() error) error {
	return kube.Until(ctx, within, check)
}
