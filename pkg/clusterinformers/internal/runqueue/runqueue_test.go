package runqueue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/clusterinformers/internal/runqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type runner func() bool

func (r runner) Run() bool { return r() }

// start runs a queue until the test ends.
func start(t *testing.T, q *runqueue.Queue, workers int) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); q.Run(ctx, workers) }()
	t.Cleanup(func() { cancel(); <-done })
}

func TestQueue_RunsATaskByOneWorkerAtATimeAndMissesNoWake(t *testing.T) {
	q := runqueue.New()
	g := q.Group()
	var inside atomic.Int32
	var woken, seen atomic.Int64
	var task runqueue.Task
	done := make(chan struct{})
	const wakes = 20_000
	g.Init(&task, runner(func() bool {
		if inside.Add(1) != 1 {
			t.Error("two workers run it")
		}
		if seen.Store(woken.Load()); seen.Load() == wakes {
			select {
			case <-done:
			default:
				close(done)
			}
		}
		inside.Add(-1)
		return false
	}))
	start(t, q, 4)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range wakes / 4 {
				woken.Add(1)
				task.Wake()
			}
		})
	}
	wg.Wait()
	<-done
}

func TestQueue_GroupsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := runqueue.New()
		var order []string
		add := func(g *runqueue.Group, name string, turns int) {
			task := new(runqueue.Task)
			g.Init(task, runner(func() bool {
				order = append(order, name)
				turns--
				return turns > 0
			}))
			task.Wake()
		}
		busy, calm := q.Group(), q.Group()
		for range 3 {
			add(busy, "busy", 3)
		}
		add(calm, "calm", 2)
		start(t, q, 1)
		synctest.Wait()
		want := []string{"busy", "calm", "busy", "calm", "busy", "busy", "busy", "busy", "busy", "busy", "busy"}
		if len(order) != len(want) {
			t.Fatalf("%v", order)
		}
		for i := range want {
			if order[i] != want[i] {
				t.Fatalf("turn %d is %s: %v", i, order[i], order)
			}
		}
	})
}

func TestQueue_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := runqueue.New()
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		go func() { q.Run(ctx, 3); ended = true }()
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("it still runs")
		}
		var task runqueue.Task
		q.Group().Init(&task, runner(func() bool { t.Error("it ran"); return false }))
		task.Wake()
	})
}

func BenchmarkQueue_WakeAndRun(b *testing.B) {
	q := runqueue.New()
	g := q.Group()
	ran := make(chan struct{}, 1)
	var task runqueue.Task
	g.Init(&task, runner(func() bool { ran <- struct{}{}; return false }))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); q.Run(ctx, 2) }()
	for b.Loop() {
		task.Wake()
		<-ran
	}
	cancel()
	<-done
}
