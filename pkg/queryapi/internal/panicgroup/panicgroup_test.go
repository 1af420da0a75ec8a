package panicgroup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGroup_WaitPanicsWithThePanicOfAFunction(t *testing.T) {
	g, ctx := panicgroup.WithContext(t.Context(), 4)
	var ended atomic.Int64
	for range 3 {
		g.Go(func() error {
			<-ctx.Done()
			ended.Add(1)
			return ctx.Err()
		})
	}
	g.Go(func() error { panic("a mistake of ours") })
	defer func() {
		text := fmt.Sprint(recover())
		if !strings.HasPrefix(text, "a mistake of ours\n") || !strings.Contains(text, "panicgroup_test.go") {
			t.Errorf("the panic: %s", text)
		}
		if ended.Load() != 3 {
			t.Errorf("%d of 3 other parts are over", ended.Load())
		}
	}()
	t.Errorf("Wait returned %v", g.Wait())
}

func TestGroup_WaitReturnsTheFirstError(t *testing.T) {
	first := errors.New("first")
	g, ctx := panicgroup.WithContext(t.Context(), 2)
	g.Go(func() error { return first })
	g.Go(func() error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if err := g.Wait(); !errors.Is(err, first) {
		t.Errorf("Wait returned %v", err)
	}
	if g, _ := panicgroup.WithContext(t.Context(), 1); g.Wait() != nil {
		t.Error("a group without parts fails")
	}
}
