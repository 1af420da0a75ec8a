package resources

import (
	"context"
	"sync/atomic"
	"time"
)

// initialEvents is the first part of a watch, in which it tells what there is. One that is
// ended before anything was told is over at once: its client knows nothing that it
// could go on from. Later the rest is told, too, so that the watch can say where it is,
// but not for ever: a client that still does not have all of it has to list. Whether
// the client is gone, or the watch is to end, cannot be told apart.
type initialEvents struct {
	ctx    context.Context // of this part alone, which ends later than the watch's
	cancel context.CancelFunc
	stop   func() bool
	state  atomic.Int32
	timer  atomic.Pointer[time.Timer]
}

// The states of a beginning.
const (
	notStarted int32 = iota // nothing has been told
	sending
	cancelled // before anything was told
)

func newInitialEvents(watch context.Context) *initialEvents {
	b := &initialEvents{}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(watch))
	ended := func() {
		if b.state.CompareAndSwap(notStarted, cancelled) {
			b.cancel()
		} else if b.state.Load() == sending {
			b.timer.CompareAndSwap(nil, time.AfterFunc(closeTimeout, b.cancel))
		}
	}
	b.stop = context.AfterFunc(watch, ended)
	if watch.Err() != nil {
		ended()
	}
	return b
}

// mayStart reports whether there is something to be told now, and somebody to tell it.
func (b *initialEvents) mayStart() bool {
	return b.state.CompareAndSwap(notStarted, sending) || b.state.Load() == sending
}

func (b *initialEvents) close() {
	b.stop()
	b.cancel()
	if t := b.timer.Load(); t != nil {
		t.Stop()
	}
}

// endIncomplete ends a watch that has not told all that there is.
func (w *watchStream) endIncomplete(b *initialEvents) error {
	if b.state.Load() == cancelled {
		return errWatchEnded
	}
	return w.endExpired()
}
