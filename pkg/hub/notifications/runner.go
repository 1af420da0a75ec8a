package notifications

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/component"
	"federator.dev/federator/pkg/notify/delivery"
)

// work is what sends for one Notification.
type work interface {
	run(ctx context.Context) error
	status() delivery.Status
	close() error
}

// After work has ended by itself it is begun again after a while, and has to run for one before it is said to be well.
const (
	firstRestart = 10 * time.Second
	maxRestart   = 5 * time.Minute
	wellAfter    = time.Minute
)

// runner runs the work of one Notification. It belongs to Controller.Run.
type runner struct {
	name     string
	notified func(notification string) map[string]bool // the policies that name it
	secret   secretData
	readAt   time.Time // when the Secret was read

	key    string // what work was made of
	work   work   // nil: nothing was started
	cancel context.CancelFunc
	done   chan struct{} // closed once it has ended
	ended  error         // why by itself; after done

	crashed error // why it ended by itself last; nil: it is well
	crashes int
	began   time.Time
	again   time.Time // when it may start after that
}

// named reports whether a policy names it, now: what is recorded of a policy is read at once.
func (r *runner) named(policy string) bool { return r.notified(r.name)[policy] }

// active reports whether it runs.
func (r *runner) active() bool {
	if r.work == nil {
		return false
	}
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// mayStart reports whether it is to be started: it does not run, or it has ended by itself long enough ago.
func (r *runner) mayStart(now time.Time) bool {
	switch {
	case r.active():
		if r.crashed != nil && now.Sub(r.began) >= wellAfter {
			r.crashed, r.crashes = nil, 0
		}
		return false
	case r.work == nil:
		return true
	case r.ended != nil:
		wait := min(firstRestart<<min(r.crashes, 10), maxRestart)
		r.crashed, r.ended, r.crashes, r.again = r.ended, nil, r.crashes+1, now.Add(wait)
	}
	return !now.Before(r.again)
}

// problem says that it has ended by itself.
func (r *runner) problem() problem {
	if r.crashed == nil {
		return problem{}
	}
	return problem{v1alpha1.NotificationFailing, "it has ended, and is begun again: " + r.crashed.Error()}
}

func (r *runner) start(ctx context.Context, key string, w work, log *slog.Logger) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	r.key, r.work, r.cancel, r.done, r.ended, r.began = key, w, cancel, done, nil, time.Now()
	go func() {
		defer close(done)
		if err := recovered(ctx, w, log); ctx.Err() == nil {
			if err == nil {
				err = component.ErrEnded
			}
			r.ended = err
			log.Error("a Notification is not sent until it is begun again", "error", err)
		}
		if err := w.close(); err != nil {
			log.Error("closing a sink failed", "error", err)
		}
	}()
}

// errPanicked is what a status says of a panic: what it says itself may be text of objects, and is logged.
var errPanicked = errors.New("it panicked, as federator's log says")

// recovered turns a panic into an error: it harms no other Notification.
func recovered(ctx context.Context, w work, log *slog.Logger) (err error) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("a Notification panicked", "error", v, "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return w.run(ctx)
}

// stop ends it and waits for that. It may run again.
func (r *runner) stop() {
	if r.work == nil {
		return
	}
	r.cancel()
	r.join()
}

// join waits until what was told to end has.
func (r *runner) join() {
	if r.work != nil {
		<-r.done
		r.work = nil
	}
}
