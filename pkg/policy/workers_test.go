package policy_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy"
)

// TestEngine_WorkersComeAndGoBesidePasses starts and ends workers while passes rest, and reads what is published.
func TestEngine_WorkersComeAndGoBesidePasses(t *testing.T) {
	w, err := deployments(t, 40)
	if err != nil {
		t.Fatal(err)
	}
	set := load(t, neighbourText("names", readsNames), neighbourText("all", readsAll), neighbourText("spec", readsSpec), wideView, wideReader)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set), Parallelism: 6})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				short, stop := context.WithTimeout(ctx, 500*time.Microsecond)
				_ = e.Run(short)
				stop()
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			s := e.State()
			for b := range s.Bindings() {
				_, _ = s.Health(b.Name)
				_ = s.Total(b.Name)
				for range s.Findings(b.Name, "") {
				}
			}
		}
	})
	for i := range 150 {
		for j := range 12 {
			mustDo(t, w, deployment("fleet/a", fmt.Sprintf("d%d", j), map[string]any{"replicas": i % 5, "lines": []any{fmt.Sprint(i)}}))
		}
		apply(t, e, cursor)
		if i%20 == 0 {
			if _, err := e.Configure(t.Context(), set, bindingsOf(set)[i/20%3:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel()
	wg.Wait()
}
