package exchange

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/exchange/internal/wire"
	"federator.dev/federator/pkg/interest"
)

// maxInterest bounds what is asked for, in one frame or in many. Who would ask for half of it asks for everything, so that
// what takes a little more room here is not refused.
const maxInterest = 32 << 20

// opening is how long an importer may take to say what it asks for first.
const opening = 10 * time.Second

// asked is what an importer has asked for. It never changes.
type asked struct {
	number uint64
	set    *interest.Set
}

// asks are what an importer asks for while it is told.
type asks struct {
	wake  trigger.Trigger // something was asked for, or no more can be
	basis asked           // what it had at the position from which it resumes

	mu     sync.Mutex
	newest asked
	err    error // why what it sends is no part of the protocol
}

// everything is asked for by who cannot ask.
func everything() *asks {
	all := asked{set: interest.Everything()}
	return &asks{wake: trigger.New(), basis: all, newest: all}
}

// readAsks reads what an importer has, and what it asks for first.
func readAsks(frames *wire.Reader) (*asks, error) {
	a := &asks{wake: trigger.New()}
	for range 2 {
		a.basis = a.newest
		if err := a.read(frames); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// follow reads what else an importer asks for, until it cannot be read.
func (a *asks) follow(frames *wire.Reader) {
	for {
		err := a.read(frames)
		if err == nil {
			a.wake.Fire()
			continue
		}
		if bad := (*MalformedError)(nil); errors.As(err, &bad) {
			a.mu.Lock()
			a.err = err
			a.mu.Unlock()
			a.wake.Fire()
		}
		return // the stream itself says that the connection is lost
	}
}

func (a *asks) read(frames *wire.Reader) error {
	t, p, err := frames.Next()
	if err != nil {
		return err
	}
	if t != wire.TypeInterest {
		return frames.Malformed("only what is asked for may come")
	}
	i, err := wire.ParseInterest(p)
	if err != nil {
		return frames.Malformed(err.Error())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i.Number < a.newest.number {
		return frames.Malformed(fmt.Sprintf("it asks for %d after %d", i.Number, a.newest.number))
	}
	if i.More {
		i.Set = a.newest.set.With(i.Set)
	}
	if bytes := i.Set.Bytes(); bytes > maxInterest {
		return frames.Malformed(fmt.Sprintf("it asks for keys of %d bytes, more than %d", bytes, maxInterest))
	}
	a.newest = asked{i.Number, i.Set}
	return nil
}

func (a *asks) now() (asked, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newest, a.err
}

// newAsks returns a reader of what an importer sends.
func newAsks(body io.Reader) *wire.Reader { return wire.NewReader(body, maxInterest) }
