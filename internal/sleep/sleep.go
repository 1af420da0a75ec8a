// Package sleep waits for time to pass, or a context to end.
package sleep

import (
	"context"
	"time"
)

// For returns after d, or with the cause of the context's end.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
