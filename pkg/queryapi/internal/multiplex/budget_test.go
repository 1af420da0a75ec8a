package multiplex

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestBudget_IsOfACallerHoweverManyStreams: what ten streams of one take together is the share of one, and
// others have their own.
func TestBudget_IsOfACallerHoweverManyStreams(t *testing.T) {
	for _, test := range []struct {
		callers         int
		atLeast, atMost time.Duration // of 200 s, with a share of 3 %
	}{
		{1, 5 * time.Second, 6500 * time.Millisecond},
		{10, 50 * time.Second, 65 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var work work
			h, err := New(Options{
				Changes: changing, Check: credible, CPU: work.cpu, Caller: func(r *http.Request) string { return r.Header.Get("Caller") },
				Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					work.do(10 * time.Millisecond)
					fmt.Fprint(w, work.used.Load())
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Second)
			defer cancel()
			var streams sync.WaitGroup
			for i := range 10 {
				r := request(ctx, "a /query/v1/members", "b /query/v1/policies")
				r.Header.Set("Caller", fmt.Sprint(i%test.callers))
				streams.Go(func() { _ = h.Serve(httptest.NewRecorder(), r) })
			}
			synctest.Wait()
			h.budgets.mu.Lock()
			n := len(h.budgets.of)
			h.budgets.mu.Unlock()
			if n != test.callers {
				t.Errorf("%d budgets are held, want %d", n, test.callers)
			}
			streams.Wait()
			if took := work.cpu(); took < test.atLeast || took > test.atMost {
				t.Errorf("10 streams of %d callers take %v of 200 s", test.callers, took)
			}
			if n := len(h.budgets.of); n != 0 {
				t.Errorf("%d budgets are held of callers without streams", n)
			}
		})
	}
}

// TestBudget_IsFreeAgainWhenOtherStreamsEnd: a question does not go on waiting for those of streams that have ended.
func TestBudget_IsFreeAgainWhenOtherStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var work work
		h, err := New(Options{Changes: changing, Caller: ann, Check: credible, CPU: work.cpu, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			work.do(100 * time.Millisecond)
			if r.URL.Path == "/query/v1/mine" {
				asked.Add(1)
			}
			fmt.Fprint(w, "1")
		})})
		if err != nil {
			t.Fatal(err)
		}
		mine, end := context.WithTimeout(t.Context(), 100*time.Second)
		defer end()
		others, endOthers := context.WithTimeout(t.Context(), 30*time.Second)
		defer endOthers()
		var streams sync.WaitGroup
		for range 50 { // with which each is asked every 170 s
			streams.Go(func() { _ = h.Serve(httptest.NewRecorder(), request(others, "a /query/v1/other")) })
		}
		synctest.Wait()
		streams.Go(func() { _ = h.Serve(httptest.NewRecorder(), request(mine, "a /query/v1/mine")) })
		streams.Wait()
		if n := asked.Load(); n < 15 {
			t.Errorf("the question that is left was asked %d times in the 70 s after", n)
		}
	})
}

// BenchmarkBudget_Pause is what a question pays for each time, while others of the caller do.
func BenchmarkBudget_Pause(b *testing.B) {
	own := budgets{of: map[string]*budget{}}
	s := &stream{options: Options{Share: 0.03}, budget: own.open("ann")}
	s.budget.questions.Add(64)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = s.pause(time.Millisecond)
		}
	})
}
