package budget

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBudget_WeightierFirst: at a rate, in the order of weights and then of coming; what waits for too long is shed.
func TestBudget_WeightierFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(2.1, 0)
		for range 4 { // what may come at once
			if err := b.Enter(t.Context(), 9); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		var mu sync.Mutex
		var order []int
		var shed int
		var all sync.WaitGroup
		for _, weight := range []int{3, 1, 3, 2, 1, 3, 3, 3, 3, 3, 3, 3, 3} {
			all.Go(func() {
				err := b.Enter(t.Context(), weight)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, ErrShed):
					shed++
				case err != nil:
					t.Error(err)
				default:
					order = append(order, weight)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if took := time.Since(began); took != patience || shed != 3 {
			t.Errorf("%d were shed after %s", shed, took)
		}
		// The first to wait is next, as nobody else does yet; then by weight.
		if !slices.IsSorted(order) || len(order) != 10 || order[1] != 1 {
			t.Errorf("in the order %v", order)
		}
		if err := b.Enter(t.Context(), 3); err != nil {
			t.Errorf("once nobody waits: %v", err)
		}
	})
}

func TestBudget_GoesWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(0.5, 0)
		if err := b.Enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if err := b.Enter(ctx, 1); !errors.Is(err, gone) {
			t.Error(err)
		}
		if len(b.waiting) > 0 {
			t.Errorf("%d wait", len(b.waiting))
		}
		time.Sleep(time.Minute) // of virtual time: what was scheduled is over
	})
}

func TestBudget_Bytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const second = 100 << 10
		b := New(0, second)
		if err := b.Enter(t.Context(), 1); err != nil {
			t.Error(err)
		}
		began := time.Now()
		if n, err := io.Copy(io.Discard, b.Slow(t.Context(), bytes.NewReader(make([]byte, 10*second)))); n != 10*second || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if took := time.Since(began); took < 7*time.Second || took > 9*time.Second { // two seconds' worth at once
			t.Errorf("it took %s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := io.Copy(io.Discard, b.Slow(ctx, bytes.NewReader(make([]byte, 10*second)))); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		body := bytes.NewReader(nil)
		if New(0, 0).Slow(t.Context(), body) != io.Reader(body) {
			t.Error("without a bound it is not the body itself")
		}
	})
}
