package history

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history/internal/segments"
)

const (
	syncInterval  = time.Second
	retryInterval = 10 * time.Second // after a failure to write
	batchRecords  = 1024             // that are taken before they are appended
	batchBytes    = 4 << 20          // that are appended at once
)

// Run records what is committed to the index that Begin was given, until ctx is done, and then what was committed
// before. It returns when nothing of it runs any more.
func (h *History) Run(ctx context.Context) (err error) {
	defer close(h.ended)
	if h.last == nil {
		return errors.New("history: Run before Begin")
	}
	beside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	sealed, unsynced := make(chan error, 1), make(chan unsynced, 1)
	running.Go(func() { sealed <- h.log.Run(beside) })
	running.Go(func() { h.syncEach(beside, unsynced) })
	join := func() { cancel(); running.Wait() }
	defer join()
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		pending, more := h.index.Pending(h.last)
		if more == nil {
			more = h.index.Newer(pending.Snapshot())
		}
		h.take(pending)
		select {
		case <-more:
		case told := <-h.told:
			h.append(told)
		case at := <-unsynced:
			h.fail(at.err, at.since, 0)
		case <-retry.C:
			h.resume(h.clock.now())
		case err := <-sealed:
			h.fail(err, h.clock.now(), 0)
			return fmt.Errorf("history: %w", err)
		case <-ctx.Done():
			join()
			return h.finish()
		}
	}
}

// unsynced is a failure to sync what was appended since a time.
type unsynced struct {
	err   error
	since time.Time
}

// syncEach syncs what is appended until ctx is done: no commit waits for that.
func (h *History) syncEach(ctx context.Context, failed chan<- unsynced) {
	tick := time.NewTicker(syncInterval)
	defer tick.Stop()
	for synced := h.clock.now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := h.clock.now()
		if err := h.log.Sync(); err != nil {
			select {
			case failed <- unsynced{err, synced}:
			case <-ctx.Done():
				return
			}
		}
		synced = now
	}
}

// finish records what was committed and told before.
func (h *History) finish() error {
	pending, _ := h.index.Pending(h.last)
	h.take(pending)
	for {
		select {
		case told := <-h.told:
			h.append(told)
			continue
		default:
		}
		if err := h.log.Sync(); err != nil {
			h.fail(err, h.taker.last, 0)
		}
		return errors.Join(h.log.Close(), h.marker.close())
	}
}

// take records what is pending.
func (h *History) take(p aggregate.Pending) {
	after := p.Snapshot()
	if after == h.last {
		return
	}
	t := h.taker
	t.last, t.now = t.now, h.clock.now().UTC()
	if commits, ok := p.Commits(); ok {
		for c := range commits {
			h.takeOne(&c)
		}
	} else {
		t.compare(h.last, after)
	}
	h.drain()
	h.last = after
	h.reached(after.Revision())
}

// takeOne takes a commit. One that cannot be taken costs nothing but itself.
func (h *History) takeOne(c *aggregate.Commit) {
	defer func() {
		if why := recover(); why != nil {
			h.opts.Log.Error("a commit cannot be recorded", "error", why, "member", c.Member, "kind", c.Kind, "revision", c.To, "stack", string(debug.Stack()))
			h.metrics.lost.Inc()
			h.taker.gap(c.Member, h.taker.uids[c.Member], c.Kind, h.taker.now, "a change cannot be recorded")
		}
	}()
	h.taker.commit(c)
}

// drain appends what was taken.
func (h *History) drain() {
	t := h.taker
	h.append(t.out)
	clear(t.out)
	t.out = t.out[:0]
}

// append appends records, unless they were recorded before the process was started again, or nothing can be written:
// then there is a gap from there on.
func (h *History) append(records []Record) {
	if len(records) == 0 {
		return
	}
	if !h.marker.since.IsZero() {
		now := h.clock.now()
		if now.Sub(h.tried) < retryInterval || !h.resume(now) {
			h.metrics.lost.Add(float64(len(records)))
			return
		}
	}
	var entries []segments.Entry
	since, bytes := records[0].Time, 0
	for i := range records {
		r := &records[i]
		if h.before[r.Key] {
			delete(h.before, r.Key)
			continue
		}
		e, err := r.entry()
		if err != nil {
			h.opts.Log.Error("a transition cannot be recorded", "error", err, "member", r.Member, "kind", r.Kind)
			h.metrics.lost.Inc()
			continue
		}
		entries = append(entries, e)
		if bytes += len(e.Payload); bytes >= batchBytes {
			h.write(entries, since, len(records)-i-1)
			if !h.marker.since.IsZero() {
				return
			}
			entries, bytes = entries[:0], 0
		}
	}
	h.write(entries, since, 0)
}

// write appends entries of since and later. What comes after them is not written if they are not.
func (h *History) write(entries []segments.Entry, since time.Time, after int) {
	if len(entries) == 0 {
		return
	}
	if _, err := h.log.Append(entries); err != nil {
		lost := after
		for i := range entries {
			if entries[i].Position == 0 {
				lost++
			}
		}
		h.fail(err, since, lost)
		return
	}
	h.metrics.records.Add(float64(len(entries)))
}

// fail notes that nothing can be written, or was, since a time.
func (h *History) fail(err error, since time.Time, lost int) {
	h.tried = h.clock.now()
	h.metrics.lost.Add(float64(lost))
	if !h.marker.since.IsZero() {
		return
	}
	h.opts.Log.Error("nothing of what happens is recorded until it can be written again", "error", err)
	h.setFailure(err)
	if since.IsZero() {
		since = h.tried
	}
	if err := h.marker.set(since.UTC()); err != nil {
		h.opts.Log.Error("if nothing can be recorded when this process ends, the next one will not know", "error", err)
	}
}

// resume tries whether it can be written again: the first record then is the gap. It reports whether it can.
func (h *History) resume(now time.Time) bool {
	if h.marker.since.IsZero() {
		return true
	}
	h.tried = now
	r := h.gapOfFailure(now)
	if !h.before[r.Key] { // the process before had come as far
		e, err := r.entry()
		if err == nil {
			_, err = h.log.Append([]segments.Entry{e})
		}
		if err != nil {
			return false
		}
		h.metrics.records.Inc()
	}
	h.opts.Log.Info("what happens is recorded again", "since", h.marker.since)
	if err := h.marker.set(time.Time{}); err != nil {
		h.opts.Log.Error("the next process will record a gap again that was", "error", err)
	}
	h.setFailure(nil)
	return true
}

// gapOfFailure is the record of what could not be written until now.
func (h *History) gapOfFailure(now time.Time) Record {
	from, to := h.marker.since, now.UTC()
	r := Record{
		Time: to, Type: Gap, Transition: "Gap", To: &to, Message: "what happened could not be written",
		Key: join("gap", h.log.ID(), from.Format(time.RFC3339Nano)),
	}
	if !from.Equal(unknownSince) {
		r.From = &from
	}
	return r
}

// reached notes up to where commits are recorded, or cannot be.
func (h *History) reached(at aggregate.Revision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written = at
	close(h.progress)
	h.progress = make(chan struct{})
}

// Wait waits until all that was committed up to a revision is recorded, or cannot be, so that what is kept of the
// index is never ahead of its history. It returns when ctx is done or Run has ended.
func (h *History) Wait(ctx context.Context, at aggregate.Revision) {
	for {
		h.mu.Lock()
		done, progress := h.written >= at, h.progress
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-progress:
		case <-h.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Tell records what does not follow from commits. It waits while much is waiting already.
func (h *History) Tell(ctx context.Context, records []Record) error {
	select {
	case h.told <- records:
		return nil
	case <-h.ended:
		return ErrEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
