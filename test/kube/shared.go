package kube

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Shared is a fleet that the tests of a package share: it starts when the first of
// them asks for it, and stops after the last.
type Shared struct {
	Options Options
	Prepare func(context.Context) error // once Fleet runs; may be nil
	Clients []*http.Client              // whose connections end before Fleet stops

	Fleet *Fleet // nil before Start
	once  sync.Once
	err   error
}

// Start returns the fleet. With -short it skips the test.
func (s *Shared) Start(tb TB) *Fleet {
	tb.Helper()
	skipShort(tb)
	s.once.Do(func() {
		ctx := context.WithoutCancel(tb.Context()) // it outlives the test that starts it
		if s.Fleet, s.err = Start(ctx, s.Options); s.err == nil && s.Prepare != nil {
			s.err = s.Prepare(ctx)
		}
	})
	if s.err != nil {
		tb.Fatalf("start the shared fleet: %v", s.err)
	}
	return s.Fleet
}

// InstallCRDs installs the CRDs of a directory on the hub, for Prepare. It returns an administrator's client there, whose
// connections end with the fleet.
func (s *Shared) InstallCRDs(ctx context.Context, dir string) (dynamic.Interface, error) {
	cfg := s.Fleet.Hub.DirectRESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	s.Clients = append(s.Clients, client)
	dyn, err := dynamic.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, err
	}
	return dyn, s.Fleet.Hub.InstallCRDs(ctx, dir)
}

// Main runs the tests of a package, and returns the code to exit with. It prints the
// ends of all logs if a test has failed, and goroutines that are left if none has.
func (s *Shared) Main(m interface{ Run() int }) (code int) {
	code = m.Run()
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if s.Fleet != nil {
		if code != 0 {
			s.Fleet.WriteLogs(os.Stderr)
		}
		for _, c := range s.Clients {
			c.CloseIdleConnections()
		}
		fail(s.Fleet.Stop())
	}
	if code == 0 {
		fail(goleak.Find())
	}
	return code
}

// Until polls until a check passes, and returns its last error when the time is up or
// ctx ends.
func Until(ctx context.Context, within time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	const longest = 20 * time.Millisecond
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, err)
		case <-time.After(pause):
		}
	}
}
