package remediate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNotNow is of a rollback that may be asked for again: another process acts, what
// that has left is being dealt with, the target is being corrected, or all actions are
// stopped.
var ErrNotNow = errNotNow

// mostLooks is how often a target is looked at that others change meanwhile.
const mostLooks = 3

// Stopped returns why nothing is written of any binding, "" when something may be.
func (d *Dispatcher) Stopped() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}

// RollBack takes an action back that was written, for a reason that is recorded. It is
// a correction as any other, guarded by the lease, Stop and what is protected; but
// somebody asks for it, so halts, suspension, windows and limits of the policy do not
// keep it from being done. It counts in the limits as what it is, a target affected.
//
// It returns the Action that does it: Succeeded when it is done, else its Phase and
// Message say what was in the way. Errors are ErrNotNow, ErrNoAction, ErrIrreversible,
// ErrChanged where the target is not as the action left it and force does not say that
// this does not matter, or one of the journal or the member, for which nothing is known.
func (d *Dispatcher) RollBack(ctx context.Context, name string, force bool, reason string) (*Action, error) {
	of, err := d.opts.Journal.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := d.occupy(of); err != nil {
		return nil, fmt.Errorf("action %q: %w", name, err)
	}
	defer d.vacate(of)
	for look := 1; ; look++ {
		now, err := lookAt(ctx, d.opts.Clients, of)
		if err != nil {
			return nil, fmt.Errorf("action %q: %w", name, err)
		}
		i, err := takeBack(of, now, force)
		if err != nil {
			return nil, err
		}
		i.Reason = reason
		a, err := d.guarded(ctx, i)
		if err == nil && a.Phase == Superseded && look < mostLooks {
			continue // it is the target that says whether that matters
		}
		if err == nil && a.Phase == Succeeded || err != nil && !errors.Is(err, errNotNow) {
			d.mu.Lock()
			d.ledger.note(i.Binding, i.Remedy.Target, time.Now())
			d.mu.Unlock()
		}
		if err != nil {
			return a, fmt.Errorf("action %q: %w", name, err)
		}
		d.opts.Corrected(a)
		return a, nil
	}
}

// occupy keeps a target from being corrected until vacate.
func (d *Dispatcher) occupy(a *Action) error {
	if err := d.held(a.Remedy.Target.Member); err != nil {
		return err
	}
	if d.opts.Lead != nil {
		if err := d.opts.Lead(); err != nil {
			return fmt.Errorf("%w: %w", errNotNow, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.stopped != "":
		return fmt.Errorf("%w: all actions are stopped: %s", errNotNow, d.stopped)
	case !d.open:
		return fmt.Errorf("%w: what was left by another process is being dealt with", errNotNow)
	case d.busy[a.Remedy.Target]:
		return fmt.Errorf("%w: the target is being written", errNotNow)
	}
	d.busy[a.Remedy.Target] = true
	return nil
}

func (d *Dispatcher) vacate(a *Action) {
	d.mu.Lock()
	delete(d.busy, a.Remedy.Target)
	d.ledger.end(a.Remedy.Target)
	d.mu.Unlock()
	d.poke()
}
