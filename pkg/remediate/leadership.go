package remediate

import (
	"context"
	"sync"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/sleep"
)

// takeoverTimeout bounds how long a new leader waits for members to answer which actions
// were written.
const takeoverTimeout = 2 * resolveTimeout

// resolving is why nothing is written, and nothing rolled back, before takeOver is done.
const resolving = "actions of an earlier leader are being resolved"

// lease returns until when this process is the leader, or why it is not.
func (d *Dispatcher) lease() (until time.Time, err error) {
	if d.opts.Lease == nil {
		return time.Time{}, nil
	}
	return d.opts.Lease()
}

// checkLeader returns why this process is not the leader, nil when it is.
func (d *Dispatcher) checkLeader() error {
	_, err := d.lease()
	return err
}

// observeLeadership records whether this process is the leader, and returns whether it is
// one that has recovered already.
func (d *Dispatcher) observeLeadership() (leads, recovered bool) {
	leads = d.checkLeader() == nil
	d.mu.Lock()
	defer d.mu.Unlock()
	recovered = d.recovered
	d.recovered = recovered && leads
	return leads, recovered
}

// checkLeadership takes over when this process has come to lead.
func (d *Dispatcher) checkLeadership(ctx context.Context) error {
	if leads, recovered := d.observeLeadership(); leads && !recovered {
		return d.takeOver(ctx)
	}
	return nil
}

// resolveLoop resolves the actions in doubt that could not be resolved at once.
func (d *Dispatcher) resolveLoop(ctx context.Context) {
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() { d.watchLeadership(ctx) })
	for sleep.For(ctx, resolveInterval) == nil {
		d.mu.Lock()
		recovered := d.recovered
		d.mu.Unlock()
		if recovered {
			d.exec.resolveAll(ctx)
		}
	}
}

// watchLeadership triggers a plan when this process becomes the leader, or no longer is:
// without corrections nothing else would, and another process may have acted in between.
func (d *Dispatcher) watchLeadership(ctx context.Context) {
	if d.opts.Lease == nil {
		return
	}
	for sleep.For(ctx, time.Second) == nil {
		if leads, recovered := d.observeLeadership(); leads != recovered {
			d.trigger()
		}
	}
}

// takeOver resolves the recorded actions that have not ended, and counts those that were
// written. Nothing new is written before. What a member does not answer in time is
// resolved later.
func (d *Dispatcher) takeOver(ctx context.Context) error {
	for {
		actions, err := d.journal.list(ctx)
		if err == nil {
			d.exec.clearInDoubt() // the journal knows more
			for _, a := range actions {
				if !isFinal(a.Phase) {
					d.exec.addInDoubt(a)
				} else {
					d.countWritten(a)
				}
			}
			soon, cancel := context.WithTimeout(ctx, takeoverTimeout)
			d.exec.resolveAll(soon) // others do not wait for slow members
			cancel()
			d.mu.Lock()
			for _, x := range d.exec.listInDoubt() { // each may have been written
				d.ledger.RecordWrite(x.action.Binding, x.action.Remedy.Target, d.opts.Clock())
			}
			d.recovered = true
			d.mu.Unlock()
			return ctx.Err()
		}
		d.opts.Logger.Error("listing Actions failed", "error", err)
		if err := sleep.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// resolved counts and reports an action that was in doubt.
func (d *Dispatcher) resolved(a *Action) {
	d.countWritten(a)
	d.corrected(a)
}

// countWritten counts an action that has been written.
func (d *Dispatcher) countWritten(a *Action) {
	if a.Phase != v1alpha1.PhaseSucceeded && a.Phase != v1alpha1.PhaseRolledBack {
		return
	}
	d.mu.Lock()
	d.ledger.RecordWrite(a.Binding, a.Remedy.Target, a.Ended)
	d.mu.Unlock()
}
