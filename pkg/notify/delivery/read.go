package delivery

import (
	"context"
	"iter"
	"slices"
	"time"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/sinks"
)

// pass sends what there is to send now, and returns how long there is nothing more to do. It waits for the history, too.
func (d *Delivery) pass(ctx context.Context) (time.Duration, error) {
	g := d.opts.Grouping
	if g == nil {
		d.at.Collection = nil // of before each was a message
		return 0, d.each(ctx)
	}
	if d.at.Collection == nil {
		found, more, err := d.find(ctx)
		if err != nil {
			return 0, err
		}
		if !found {
			return 0, d.idle(ctx, more)
		}
		wait := max(g.Wait, min(g.Interval, time.Until(d.at.LastSent.Add(g.Interval)))) // the clock may have been set back since
		if err := sleep.For(ctx, wait); err != nil {
			return 0, err
		}
		d.at.Collection = &collection{To: d.opts.Log.Span().Last}
	}
	return 0, d.collection(ctx)
}

// idle waits for more, and writes now and then down that there was nothing.
func (d *Delivery) idle(ctx context.Context, more bool) error {
	if now := time.Now(); now.Sub(d.saved) >= idleSave {
		if err := d.save(false); err != nil {
			return err
		}
	}
	d.succeeded()
	if more {
		return nil
	}
	select {
	case <-d.opts.Log.More(d.at.After):
	case <-ctx.Done():
	}
	return nil
}

// records yields what is between the position and another, exclusive (0: the end), and ends with the context. What is missing before the log comes first.
func (d *Delivery) records(ctx context.Context, before uint64) iter.Seq2[history.Record, error] {
	q := history.Query{After: d.at.After, Before: before}
	return func(yield func(history.Record, error) bool) {
		if m := d.at.Missing; m != nil && !yield(*m, nil) {
			return
		}
		for r, err := range d.opts.Log.Read(q) {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// moved notes that a transition was sent, or is not selected.
func (d *Delivery) moved(r *history.Record) {
	if r.Position > 0 {
		d.at.After, d.at.Until = r.Position, r.Time
	}
}

// find moves to the first transition that is selected, or to the end. more is whether that was not reached.
func (d *Delivery) find(ctx context.Context) (found, more bool, err error) {
	end, n := d.opts.Log.Span().Last, 0
	for r, err := range d.records(ctx, 0) {
		if err != nil {
			return false, false, err
		}
		if d.selects(&r) {
			return true, false, nil
		}
		d.moved(&r)
		if n++; n == pageRead {
			return false, true, nil
		}
	}
	d.at.After = max(d.at.After, end) // what is not there was said to be missing
	return false, false, nil
}

// batch is messages of one transition each, and what was read with them.
type batch struct {
	messages []sinks.Message
	of       []history.Record // their positions, times, types and keys
	bytes    int
}

func (b *batch) add(m sinks.Message, r *history.Record) {
	b.messages, b.of, b.bytes = append(b.messages, m), append(b.of, history.Record{Position: r.Position, Time: r.Time, Type: r.Type, Key: r.Key}), b.bytes+len(m.Data)
}

func (b *batch) full() bool { return len(b.messages) == chunk || b.bytes >= chunkBytes }

// each sends a message of each transition that is selected, and waits if there is none.
func (d *Delivery) each(ctx context.Context) error {
	var b batch
	end, n, sent := d.opts.Log.Span().Last, 0, false
	flush := func() error {
		sent = sent || len(b.messages) > 0
		return d.flush(ctx, &b)
	}
	last := history.Record{}
	for r, err := range d.records(ctx, 0) {
		if err == nil && d.selects(&r) {
			var m sinks.Message
			if m, err = single(&d.opts, &r); err == nil {
				b.add(m, &r)
			}
		}
		if err != nil {
			if failed := flush(); failed != nil {
				return failed
			}
			return err
		}
		if b.full() {
			if err := flush(); err != nil {
				return err
			}
		}
		if r.Position > 0 {
			last = history.Record{Position: r.Position, Time: r.Time}
		}
		if n++; n == pageRead {
			break
		}
	}
	if err := flush(); err != nil {
		return err
	}
	d.moved(&last)
	if n < pageRead {
		d.at.After = max(d.at.After, end) // what is not there was said to be missing
	}
	if sent {
		d.publish(nil)
		return nil
	}
	return d.idle(ctx, n == pageRead)
}

// flush sends the messages of a batch, and empties it.
func (d *Delivery) flush(ctx context.Context, b *batch) error {
	for len(b.messages) > 0 {
		sent, err := d.send(ctx, b.messages)
		if sent > 0 {
			for i := range b.of[:sent] {
				if r := &b.of[i]; r.Position > 0 {
					d.moved(r)
				} else {
					d.at.addGap(r.Key)
				}
			}
			d.at.LastSent = time.Now().UTC()
			if err := d.save(false); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		b.messages, b.of = b.messages[sent:], b.of[sent:]
	}
	*b = batch{}
	return nil
}

// selects reports whether a transition is to be sent.
func (d *Delivery) selects(r *history.Record) bool {
	if r.Type == history.Gap && (r.Position == 0 && d.at.reported(r.Key) || r.To == nil) {
		return !d.at.reported(r.Key) // whenever it was
	}
	return !when(r).Before(d.at.Floor) && d.opts.Selects(r)
}

// when returns when a transition was, as far as it says so itself: one that is of the hub, or of a violation that is found again, may have been
// recorded by another process before. What members say of objects is by clocks of theirs, and of when they were asked for.
func when(r *history.Record) time.Time {
	at := r.Time
	if (r.Type == history.Action || r.Type == history.Policy) && r.MemberTime != nil && r.MemberTime.Before(at) {
		at = *r.MemberTime
	}
	if r.Type == history.Verdict && r.Transition == history.Opened && r.FirstSeen != nil && r.FirstSeen.Before(at) {
		at = *r.FirstSeen
	}
	if r.Type == history.Gap && r.To != nil {
		at = *r.To
	}
	return at
}

// collection sends the messages of the collection that was begun.
func (d *Delivery) collection(ctx context.Context) error {
	c := newCollector(&d.opts)
	to, until := d.at.Collection.To, d.at.Until
	for r, err := range d.records(ctx, to+1) {
		if err != nil {
			return err
		}
		if r.Position > 0 {
			until = r.Time
		}
		if !d.selects(&r) {
			continue
		}
		c.add(&r)
		if c.n == maxCollect && r.Position > 0 {
			to = r.Position
			break
		}
	}
	d.at.Collection.To = to
	if err := d.save(true); err != nil {
		return err
	}
	messages, err := c.messages(d.at.Log, d.at.After, to)
	if err != nil {
		return err
	}
	messages = slices.DeleteFunc(messages, func(m sinks.Message) bool { return slices.Contains(d.at.Collection.Sent, m.ID) })
	for len(messages) > 0 {
		sent, err := d.send(ctx, messages[:chunkOf(messages)])
		for i := range messages[:sent] {
			d.at.Collection.Sent = append(d.at.Collection.Sent, messages[i].ID)
		}
		if sent > 0 {
			d.at.LastSent = time.Now().UTC()
			if err := d.save(false); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		messages = messages[sent:]
	}
	for i := range c.gaps {
		if c.gaps[i].Position == 0 {
			d.at.addGap(c.gaps[i].Key)
		}
	}
	d.at.After, d.at.Until, d.at.Collection = to, until, nil
	return d.save(true)
}

// chunkOf returns how many messages are sent at once.
func chunkOf(messages []sinks.Message) int {
	n, bytes := 0, 0
	for n < min(len(messages), chunk) && (n == 0 || bytes < chunkBytes) {
		bytes += len(messages[n].Data)
		n++
	}
	return n
}
