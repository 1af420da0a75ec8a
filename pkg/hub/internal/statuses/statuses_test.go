package statuses_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/hub/internal/statuses"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWriter_WritesTheNewestOnce: one at a time, what was replaced not at all, and a failure is
// told until the next statuses are set.
func TestWriter_WritesTheNewestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		got := map[string]int{}
		hold, failing := make(chan struct{}), true
		w := statuses.NewWriter(func(_ context.Context, text string) error {
			<-hold
			mu.Lock()
			defer mu.Unlock()
			if got[text]++; failing {
				return errors.New("the hub is away")
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })

		w.Set(map[string]string{"a": "a1"})
		synctest.Wait() // the write of a1 has begun
		w.Set(map[string]string{"a": "a2", "b": "b1"})
		w.Set(map[string]string{"a": "a3", "b": "b1"})
		close(hold)
		synctest.Wait()
		mu.Lock()
		if len(got) != 3 || got["a1"] != 1 || got["a3"] != 1 || got["b1"] != 1 {
			t.Errorf("written %v", got)
		}
		failing = false
		mu.Unlock()
		if !w.Failed() {
			t.Error("no failure is told")
		}
		w.Set(map[string]string{"a": "a3"})
		synctest.Wait()
		mu.Lock()
		if w.Failed() || got["a3"] != 2 || got["b1"] != 1 {
			t.Errorf("written again: %v, failed %t", got, w.Failed())
		}
		mu.Unlock()
		cancel()
		running.Wait()
	})
}

// TestWriter_LetsNoneWait: names are written in turn, however often all are set again.
func TestWriter_LetsNoneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := make(chan string)
		w := statuses.NewWriter(func(ctx context.Context, name string) error {
			select {
			case names <- name:
			case <-ctx.Done():
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		got := ""
		for range 7 {
			w.Set(map[string]string{"a": "a", "b": "b", "c": "c"})
			got += <-names
		}
		if got != "abcabca" {
			t.Errorf("written: %s", got)
		}
		cancel()
		running.Wait()
	})
}
