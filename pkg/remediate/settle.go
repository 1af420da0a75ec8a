package remediate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/pkg/policy"
)

const (
	// settleEvery is how often what is left is looked at, and settleTimeout how long
	// one look may take.
	settleEvery   = 15 * time.Second
	settleTimeout = 5 * time.Second
	// lastWord is how long a request may still be on its way to a target that does not
	// show it: API servers end requests before.
	lastWord = time.Minute
)

// leftover is an action that is recorded, and of which this process does not know
// whether it was written.
type leftover struct {
	action *Action
	since  time.Time
}

// hold waits until nobody else is at work on a target.
func (x *executor) hold(ctx context.Context, target policy.Ref) (release func(), err error) {
	for {
		x.mu.Lock()
		busy := x.held[target]
		if busy == nil {
			mine := make(chan struct{})
			if x.held == nil {
				x.held = map[policy.Ref]chan struct{}{}
			}
			x.held[target] = mine
			x.mu.Unlock()
			return func() {
				x.mu.Lock()
				delete(x.held, target)
				x.mu.Unlock()
				close(mine)
			}, nil
		}
		x.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-busy:
		}
	}
}

// leave notes an action that is to be settled.
func (x *executor) leave(a *Action) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.left == nil {
		x.left = map[string]*leftover{}
	}
	if x.left[a.Name] == nil {
		copied := *a // who asked for it reads the other
		x.left[a.Name] = &leftover{&copied, x.clock()}
	}
}

func (x *executor) forget(name string) {
	x.mu.Lock()
	delete(x.left, name)
	x.mu.Unlock()
}

// leftovers are what is to be settled, in order.
func (x *executor) leftovers() []*leftover {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []*leftover
	for _, l := range x.left {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *leftover) int { return strings.Compare(a.action.Name, b.action.Name) })
	return all
}

// settleOthers finds out what became of what was left for the target of an action: after
// the next write nobody can tell. The caller holds the target.
func (x *executor) settleOthers(ctx context.Context, a *Action) error {
	for _, l := range x.leftovers() {
		if l.action.Remedy.Target != a.Remedy.Target || l.action.Name == a.Name {
			continue
		}
		if err := x.settle(ctx, l.action, true); err != nil {
			return fmt.Errorf("what was left for its target: %w", err)
		}
	}
	return nil
}

// settle finds out whether an action that is left was written. What cannot be known
// yet stays left: the last look takes what does not show for not written. The caller
// holds the target.
func (x *executor) settle(ctx context.Context, a *Action, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if !a.Phase.Final() { // else only the record is missing
		if err := x.look(ctx, a, last); err != nil {
			return fmt.Errorf("action %q: %w", a.Name, err)
		}
	}
	if !a.Phase.Final() {
		return nil
	}
	if err := x.record(ctx, a); err != nil && !errors.Is(err, ErrNoAction) && !errors.Is(err, ErrEnded) {
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	x.forget(a.Name)
	if x.settled != nil {
		x.settled(a)
	}
	return nil
}

func (x *executor) look(ctx context.Context, a *Action, last bool) error {
	if a.tried {
		x.end(a, Failed, "the process that has tried it ended before it could say what came of it; nothing was written")
		return nil
	}
	c, err := x.clients.Client(a.Remedy.Target.Member, a.Remedy.Target.Kind, a.APIVersion)
	if err != nil {
		return err
	}
	object, unmoved, err := x.target(ctx, c, a)
	if err != nil {
		return err
	}
	if x.landed(a, object, unmoved); !a.Phase.Final() && last {
		x.end(a, Failed, "it was recorded, and not written")
	}
	return nil
}

// settleLeft looks once at all that is left. A member that does not answer is asked
// once; what is left there stays so, which its record says: it is still Writing.
func (x *executor) settleLeft(ctx context.Context) {
	byMember := map[string][]*leftover{}
	for _, l := range x.leftovers() {
		member := l.action.Remedy.Target.Member
		byMember[member] = append(byMember[member], l)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, list := range byMember {
		wg.Go(func() {
			for _, l := range list {
				if x.settleOne(ctx, l) != nil {
					return
				}
			}
		})
	}
}

func (x *executor) settleOne(ctx context.Context, l *leftover) error {
	release, err := x.hold(ctx, l.action.Remedy.Target)
	if err != nil {
		return err
	}
	defer release()
	x.mu.Lock()
	still := x.left[l.action.Name] == l
	x.mu.Unlock()
	if !still {
		return nil // somebody has taken it up
	}
	return x.settle(ctx, l.action, x.clock().Sub(l.since) >= lastWord)
}

// abandon forgets what is left.
func (x *executor) abandon() {
	x.mu.Lock()
	clear(x.left)
	x.mu.Unlock()
}
