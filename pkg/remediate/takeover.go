package remediate

import (
	"context"
	"sync"
	"time"
)

// parallelTakeOver is how many actions of a predecessor are looked at at once.
const parallelTakeOver = 16

// takeOver finds out what became of the actions that are recorded and not ended, and
// counts those that have been written. Before it is done nothing new is written.
func (d *Dispatcher) takeOver(ctx context.Context) error {
	for {
		actions, err := d.opts.Journal.List(ctx)
		if err == nil {
			var wg sync.WaitGroup
			slots := make(chan struct{}, parallelTakeOver)
			for _, a := range actions {
				slots <- struct{}{}
				wg.Go(func() {
					d.inherit(ctx, a)
					<-slots
				})
			}
			wg.Wait()
			d.mu.Lock()
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

func (d *Dispatcher) inherit(ctx context.Context, a *Action) {
	if !a.Phase.Final() {
		if err := d.exec.settle(ctx, a); err != nil {
			d.opts.Logger.Error("what became of an action is not known", "action", a.Name, "policy", a.Binding,
				"member", a.Remedy.Target.Member, "err", err)
		}
	}
	if a.Phase == Succeeded {
		d.mu.Lock()
		d.ledger.note(a.Binding, a.Remedy.Target, a.Ended)
		d.mu.Unlock()
	}
}

// settle finds out whether an action that another process left Writing was written. If
// not it is Failed: whoever wants the same correction still goes on from there.
func (x *executor) settle(ctx context.Context, a *Action) error {
	err := x.retry(ctx, a, func(c *Client) error {
		object, unmoved, err := x.target(ctx, c, a)
		if err != nil {
			return err
		}
		if x.landed(a, object, unmoved); !a.Phase.Final() {
			x.end(a, Failed, "the process that wrote it ended before it did")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return x.record(ctx, a)
}
