package remediate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lists is a journal that counts how often somebody takes over.
type lists struct {
	noJournal

	mu    sync.Mutex
	times int
}

func (j *lists) List(context.Context) ([]*Action, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.times++
	return nil, nil
}

func (j *lists) taken() int {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.times
}

// TestWhoeverLeadsAgainTakesOverAgain: another process may have led in between, while
// this one had nothing to do.
func TestWhoeverLeadsAgainTakesOverAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var follows atomic.Bool
		j := &lists{}
		d, err := New(Options{Clients: noClients{}, Journal: j, Lead: func() error {
			if follows.Load() {
				return errors.New("another process acts")
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		for n := 1; n <= 3; n++ {
			time.Sleep(time.Minute)
			if got := j.taken(); got != n {
				t.Errorf("taken over %d times, want %d", got, n)
			}
			follows.Store(true)
			time.Sleep(2 * time.Second)
			follows.Store(false)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
