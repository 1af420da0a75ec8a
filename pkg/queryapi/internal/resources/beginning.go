package resources

import (
	"context"
	"sync/atomic"
	"time"
)

// beginning is the first part of a watch, in which it tells what there is. One that is
// ended before anything was told is over at once: its client knows nothing that it
// could go on from. Later the rest is told, too, so that the watch can say where it is,
// but not for ever: a client that still does not have all of it has to list. Whether
// the client is gone, or the watch is to end, cannot be told apart.
type beginning struct {
	ctx   context.Context //nolint:containedctx // of this part alone, which ends later than the watch's
	over  context.CancelFunc
	stop  func() bool
	state atomic.Int32
	late  atomic.Pointer[time.Timer]
}

// The states of a beginning.
const (
	silent int32 = iota // nothing has been told
	telling
	cancelled // before anything was told
)

func newBeginning(watch context.Context) *beginning {
	b := &beginning{}
	b.ctx, b.over = context.WithCancel(context.WithoutCancel(watch))
	ended := func() {
		if b.state.CompareAndSwap(silent, cancelled) {
			b.over()
		} else if b.state.Load() == telling {
			b.late.CompareAndSwap(nil, time.AfterFunc(ending, b.over))
		}
	}
	b.stop = context.AfterFunc(watch, ended)
	if watch.Err() != nil {
		ended()
	}
	return b
}

// tells reports whether there is something to be told now, and somebody to tell it.
func (b *beginning) tells() bool {
	return b.state.CompareAndSwap(silent, telling) || b.state.Load() == telling
}

func (b *beginning) close() {
	b.stop()
	b.over()
	if t := b.late.Load(); t != nil {
		t.Stop()
	}
}

// cutShort ends a watch that has not told all that there is.
func (w *watching) cutShort(b *beginning) error {
	if b.state.Load() == cancelled {
		return errEnd
	}
	return w.fallenBehind()
}
