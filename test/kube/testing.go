package kube

import (
	"context"
	"strings"
	"testing"

	"federator.dev/federator/test/kube/tcpproxy"
)

// TB is what [StartTest] needs of a test or benchmark: *testing.T and
// *testing.B have it.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Skip(args ...any)
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// StartTest starts a fleet that lives as long as the test, and logs the end of
// every process's log if the test fails. With -short it skips the test.
func StartTest(tb TB, opts Options) *Fleet {
	tb.Helper()
	skipShort(tb)
	// The test's context ends before its cleanups run, which read the logs.
	f, err := Start(context.WithoutCancel(tb.Context()), opts)
	if err != nil {
		tb.Fatalf("start fleet: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			var b strings.Builder
			f.WriteLogs(&b)
			tb.Logf("%s", b.String())
		}
		if err := f.Stop(); err != nil {
			tb.Logf("stop fleet: %v", err)
		}
	})
	return f
}

// skipShort skips a test that needs control planes where only quick ones are to run.
func skipShort(tb TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("no control planes with -short")
	}
}

// FreeAddress returns an address of this machine that nobody listens on, for a process that is to have the same one again
// and again.
func FreeAddress(tb TB) string {
	tb.Helper()
	l, err := tcpproxy.ListenBelow("127.0.0.1")
	if err != nil {
		tb.Fatalf("a free address: %v", err)
	}
	defer l.Close()
	return l.Addr().String()
}
