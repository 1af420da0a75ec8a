package remediate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

const (
	// resolveInterval is how often what is left is looked at, and settleTimeout how long
	// one look may take.
	resolveInterval = 15 * time.Second
	resolveTimeout  = 5 * time.Second
	// inFlightTimeout is how long a request may still be on its way to a target that does not
	// show it: API servers end requests before.
	inFlightTimeout = time.Minute
)

// inDoubtAction is an action that is recorded, and of which this process does not know
// whether it was written.
type inDoubtAction struct {
	action *Action
	since  time.Time
}

// lockTarget waits until nobody else is at work on a target.
func (x *executor) lockTarget(ctx context.Context, target policy.Ref) (release func(), err error) {
	for {
		x.mu.Lock()
		busy := x.locks[target]
		if busy == nil {
			mine := make(chan struct{})
			if x.locks == nil {
				x.locks = map[policy.Ref]chan struct{}{}
			}
			x.locks[target] = mine
			x.mu.Unlock()
			return func() {
				x.mu.Lock()
				delete(x.locks, target)
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

// addInDoubt notes an action that is to be settled.
func (x *executor) addInDoubt(a *Action) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.inDoubt == nil {
		x.inDoubt = map[string]*inDoubtAction{}
	}
	if x.inDoubt[a.Name] == nil {
		copied := *a // who asked for it reads the other
		x.inDoubt[a.Name] = &inDoubtAction{&copied, x.clock()}
	}
}

func (x *executor) removeInDoubt(name string) {
	x.mu.Lock()
	delete(x.inDoubt, name)
	x.mu.Unlock()
}

// listInDoubt are what is to be settled, in order.
func (x *executor) listInDoubt() []*inDoubtAction {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []*inDoubtAction
	for _, l := range x.inDoubt {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *inDoubtAction) int { return strings.Compare(a.action.Name, b.action.Name) })
	return all
}

// resolveOthers finds out what became of what was left for the target of an action: after
// the next write nobody can tell. The caller holds the target.
func (x *executor) resolveOthers(ctx context.Context, a *Action) error {
	for _, l := range x.listInDoubt() {
		if l.action.Remedy.Target != a.Remedy.Target || l.action.Name == a.Name {
			continue
		}
		if err := x.resolve(ctx, l.action, true); err != nil {
			return fmt.Errorf("what was left for its target: %w", err)
		}
	}
	return nil
}

// resolve finds out whether an action that is left was written. What cannot be known
// yet stays left: the last look takes what does not show for not written. The caller
// holds the target.
func (x *executor) resolve(ctx context.Context, a *Action, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	if !isFinal(a.Phase) { // else only the record is missing
		if err := x.inspect(ctx, a, last); err != nil {
			return fmt.Errorf("action %q: %w", a.Name, err)
		}
	}
	if !isFinal(a.Phase) {
		return nil
	}
	if err := x.record(ctx, a); err != nil && !errors.Is(err, ErrNoAction) && !errors.Is(err, errEnded) {
		return fmt.Errorf("action %q: %w", a.Name, err)
	}
	x.removeInDoubt(a.Name)
	if x.onResolved != nil {
		x.onResolved(a)
	}
	return nil
}

func (x *executor) inspect(ctx context.Context, a *Action, last bool) error {
	if a.tried {
		x.finish(a, v1alpha1.PhaseFailed, "the process that has tried it ended before it could say what came of it; nothing was written")
		return nil
	}
	c, err := x.clients.Client(a.Remedy.Target.Member, a.Remedy.Target.Kind, a.APIVersion)
	if err != nil {
		return err
	}
	object, unmoved, err := x.readTarget(ctx, c, a)
	if err != nil {
		return err
	}
	if x.resolveOutcome(a, object, unmoved); !isFinal(a.Phase) && last {
		x.finish(a, v1alpha1.PhaseFailed, "it was recorded, and not written")
	}
	return nil
}

// resolveAll looks once at all that is left. A member that does not answer is asked
// once; what is left there stays so, which its record says: it is still Writing.
func (x *executor) resolveAll(ctx context.Context) {
	byMember := map[string][]*inDoubtAction{}
	for _, l := range x.listInDoubt() {
		member := l.action.Remedy.Target.Member
		byMember[member] = append(byMember[member], l)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, list := range byMember {
		wg.Go(func() {
			for _, l := range list {
				if x.resolveOne(ctx, l) != nil {
					return
				}
			}
		})
	}
}

func (x *executor) resolveOne(ctx context.Context, l *inDoubtAction) error {
	release, err := x.lockTarget(ctx, l.action.Remedy.Target)
	if err != nil {
		return err
	}
	defer release()
	x.mu.Lock()
	still := x.inDoubt[l.action.Name] == l
	x.mu.Unlock()
	if !still {
		return nil // somebody has taken it up
	}
	return x.resolve(ctx, l.action, x.clock().Sub(l.since) >= inFlightTimeout)
}

// clearInDoubt forgets what is left.
func (x *executor) clearInDoubt() {
	x.mu.Lock()
	clear(x.inDoubt)
	x.mu.Unlock()
}
