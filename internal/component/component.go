package component

import (
	"context"
	"errors"
	"sync"
)

// Idle runs until the context ends: it stands for a component that is disabled.
func Idle(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Component is a goroutine that runs until it is stopped.
type Component struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	err    error // once done
}

// ErrEnded is the failure of a component that returned before it was stopped.
var ErrEnded = errors.New("ended before it was stopped")

// Start runs f. If f returns before Stop, its error is sent to failed unless that is nil;
// failed must have room for it.
func Start(ctx context.Context, f func(context.Context) error, failed chan<- error) *Component {
	ctx, cancel := context.WithCancel(ctx)
	p := &Component{cancel: cancel}
	p.done.Go(func() {
		err := f(ctx)
		if ctx.Err() != nil {
			if !errors.Is(err, context.Canceled) {
				p.err = err
			}
			return
		}
		if err == nil {
			err = ErrEnded
		}
		if failed != nil {
			failed <- err
		}
	})
	return p
}

// Stop stops the component, waits for it and returns its error. The error of one that
// returned earlier went to failed.
func (p *Component) Stop() error {
	p.cancel()
	p.done.Wait()
	return p.err
}
