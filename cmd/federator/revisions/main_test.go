package revisions_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"federator.dev/federator/cmd/federator/revisions"
)

// reserveIn makes this binary a process that reserves blocks in a file.
const reserveIn = "REVISIONS_RESERVE_IN"

func TestMain(m *testing.M) {
	if path := os.Getenv(reserveIn); path != "" {
		for range perProcess {
			n, err := revisions.InFile(path).Reserve(context.Background(), 1000)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println(n)
		}
		os.Exit(0)
	}
	klog.StopFlushDaemon() // flushes files that it never opens
	goleak.VerifyTestMain(m)
}

// perProcess is how many blocks a process reserves.
const perProcess = 25

// different fails the test when a block was reserved twice.
func wantDistinct(t *testing.T, blocks []uint64) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(blocks))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			t.Errorf("block %d was reserved twice", sorted[i])
		}
	}
}
