package segments

import (
	"context"
	"errors"
	"time"

	"federator.dev/federator/internal/frames"
)

// runInterval is how often Run looks for what has expired, and tries again what failed.
const runInterval = 15 * time.Second

// Run seals full segments and expires old ones until the context ends, and returns nil then. What
// fails is logged, and tried again.
func (l *Log) Run(ctx context.Context) error {
	w, err := newSealer(l)
	if err != nil {
		return err
	}
	tick := time.NewTicker(runInterval)
	defer tick.Stop()
	for {
		l.rotateOld()
		l.expireOld()
		l.expireFor(0)
		l.sealAll(ctx, w)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-l.wake:
		}
	}
}

// sealAll seals all segments that are not appended to any more.
func (l *Log) sealAll(ctx context.Context, w *sealer) {
	for ctx.Err() == nil {
		s := l.unsealed()
		if s == nil {
			l.setProblem(nil)
			return
		}
		err := w.seal(ctx, s)
		s.release()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return
		case errors.Is(err, frames.ErrDoubt):
			// What can be read of it is read from where it is.
			l.opts.Log.Error("a segment of history is damaged: it is not sealed", "file", s.path, "error", err)
			l.mu.Lock()
			s.unsealable = true
			l.mu.Unlock()
		default:
			l.opts.Log.Warn("sealing a segment of history", "file", s.path, "error", err)
			l.setProblem(err)
			return
		}
	}
}

// unsealed returns, acquired, the oldest segment that is to be sealed.
func (l *Log) unsealed() *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.full && s.sealed == nil && s.damaged == nil && !s.unsealable && s.last >= s.first {
			s.acquire()
			return s
		}
	}
	return nil
}

func (l *Log) setProblem(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problem = err
}

// rotateOld ends the active segment once its first entry is an eighth of MaxAge old, so that it
// expires in time.
func (l *Log) rotateOld() {
	if l.opts.MaxAge == 0 {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	s := l.active
	if s == nil || s.last < s.first || l.opts.Now().UnixMilli()-s.since < (l.opts.MaxAge/8).Milliseconds() {
		return
	}
	if err := l.rotate(); err != nil {
		l.opts.Log.Warn("beginning a segment of history", "error", err)
	}
}

// expireOld removes segments all of whose entries are older than MaxAge.
func (l *Log) expireOld() {
	if l.opts.MaxAge == 0 {
		return
	}
	before := l.opts.Now().Add(-l.opts.MaxAge).UnixMilli()
	l.expire(func(_ int64, oldest *segment) bool { return oldest.until < before })
}
