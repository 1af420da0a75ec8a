package sleep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/internal/sleep"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := sleep.For(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(stopped) })
		start = time.Now()
		if err := sleep.For(ctx, time.Hour); !errors.Is(err, stopped) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
