package resources

import (
	"context"
	"sync/atomic"
	"time"
)

// initialEvents is the phase of a watch that sends its initial events. A watch that ends
// before the first is sent ends at once: its client has nothing to resume from. After that
// the rest is sent, too, so that a bookmark can follow, but only for closeTimeout: a client
// that does not have all of them by then has to list. A client that has disconnected
// cannot be distinguished from a watch that is to end.
type initialEvents struct {
	ctx    context.Context // of this phase, which ends later than that of the watch
	cancel context.CancelFunc
	stop   func() bool
	state  atomic.Int32
	timer  atomic.Pointer[time.Timer]
}

// States of initialEvents.
const (
	notStarted int32 = iota // nothing has been sent
	sending
	cancelled // before anything was sent
)

func newInitialEvents(watch context.Context) *initialEvents {
	e := &initialEvents{}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(watch))
	ended := func() {
		if e.state.CompareAndSwap(notStarted, cancelled) {
			e.cancel()
		} else if e.state.Load() == sending {
			e.timer.CompareAndSwap(nil, time.AfterFunc(closeTimeout, e.cancel))
		}
	}
	e.stop = context.AfterFunc(watch, ended)
	if watch.Err() != nil {
		ended()
	}
	return e
}

// start starts the phase, and reports whether events may be sent: it is not cancelled.
func (e *initialEvents) start() bool {
	return e.state.CompareAndSwap(notStarted, sending) || e.state.Load() == sending
}

func (e *initialEvents) close() {
	e.stop()
	e.cancel()
	if t := e.timer.Load(); t != nil {
		t.Stop()
	}
}

// endIncomplete ends a watch that has not sent all initial events.
func (w *watchStream) endIncomplete(e *initialEvents) error {
	if e.state.Load() == cancelled {
		return errWatchEnded
	}
	return w.endExpired()
}
