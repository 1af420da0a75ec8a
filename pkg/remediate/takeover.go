package remediate

import (
	"context"
	"sync"
	"time"
)

// takeOverTimeout is how long members may take to say what became of what was left.
const takeOverTimeout = 2 * settleTimeout

// serve takes over when this process has come to lead, and takes note when it does not
// any more.
func (d *Dispatcher) serve(ctx context.Context) error {
	leads := d.opts.Lead == nil || d.opts.Lead() == nil
	d.mu.Lock()
	open := d.open
	d.open = open && leads
	d.mu.Unlock()
	if leads && !open {
		return d.takeOver(ctx)
	}
	return nil
}

// sweep settles what could not be settled at once.
func (d *Dispatcher) sweep(ctx context.Context) {
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() { d.watchLead(ctx) })
	for sleep(ctx, settleEvery) == nil {
		d.mu.Lock()
		open := d.open
		d.mu.Unlock()
		if open {
			d.exec.settleLeft(ctx)
		}
	}
}

// watchLead wakes the plan when this process begins or ceases to lead. That may happen
// while there is nothing to do, and another process may have acted in between.
func (d *Dispatcher) watchLead(ctx context.Context) {
	if d.opts.Lead == nil {
		return
	}
	for sleep(ctx, time.Second) == nil {
		leads := d.opts.Lead() == nil
		d.mu.Lock()
		open := d.open
		d.open = open && leads
		d.mu.Unlock()
		if open != leads {
			d.poke()
		}
	}
}

// takeOver finds out what became of the actions that are recorded and not ended, and
// counts those that have been written. Before it is done nothing new is written. What
// a member does not tell now is settled when it does.
func (d *Dispatcher) takeOver(ctx context.Context) error {
	for {
		actions, err := d.opts.Journal.List(ctx)
		if err == nil {
			d.exec.abandon() // the journal knows more
			for _, a := range actions {
				if !a.Phase.Final() {
					d.exec.leave(a)
				} else {
					d.settled(a)
				}
			}
			soon, cancel := context.WithTimeout(ctx, takeOverTimeout)
			d.exec.settleLeft(soon) // slow members do not keep others waiting
			cancel()
			d.mu.Lock()
			for _, l := range d.exec.leftovers() { // each may have been written
				d.ledger.note(l.action.Binding, l.action.Remedy.Target, time.Now())
			}
			d.open = true
			d.mu.Unlock()
			return ctx.Err()
		}
		d.opts.Logger.Error("actions cannot be read", "err", err)
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// later counts and tells of what has been settled.
func (d *Dispatcher) later(a *Action) {
	d.settled(a)
	d.opts.Corrected(a)
}

// settled counts what has been written, as is known now.
func (d *Dispatcher) settled(a *Action) {
	if a.Phase != Succeeded && a.Phase != RolledBack {
		return
	}
	d.mu.Lock()
	d.ledger.note(a.Binding, a.Remedy.Target, a.Ended)
	d.mu.Unlock()
}
