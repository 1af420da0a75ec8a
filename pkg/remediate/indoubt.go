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
	// resolveInterval is how often actions in doubt are inspected, and resolveTimeout how
	// long one inspection may take.
	resolveInterval = 15 * time.Second
	resolveTimeout  = 5 * time.Second
	// inFlightTimeout is how long a request may still be executed that its target does not
	// show: API servers end requests earlier.
	inFlightTimeout = time.Minute
)

// inDoubtAction is a recorded action of which this process does not know whether it was
// written.
type inDoubtAction struct {
	action *Action
	since  time.Time
}

// lockTarget waits until no other goroutine works on a target.
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

// addInDoubt adds an action that is to be resolved.
func (x *executor) addInDoubt(a *Action) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.inDoubt == nil {
		x.inDoubt = map[string]*inDoubtAction{}
	}
	if x.inDoubt[a.Name] == nil {
		copied := *a // the caller reads the other
		x.inDoubt[a.Name] = &inDoubtAction{&copied, x.clock()}
	}
}

func (x *executor) removeInDoubt(name string) {
	x.mu.Lock()
	delete(x.inDoubt, name)
	x.mu.Unlock()
}

// listInDoubt returns the actions in doubt, ordered by name.
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

// rollsBack reports whether an action in doubt rolls back another one.
func (x *executor) rollsBack(name string) bool {
	return slices.ContainsFunc(x.listInDoubt(), func(l *inDoubtAction) bool { return l.action.RollbackOf == name })
}

// resolveOthers resolves other actions in doubt of an action's target: the next write would
// hide their outcome. The caller has locked the target.
func (x *executor) resolveOthers(ctx context.Context, a *Action) error {
	for _, l := range x.listInDoubt() {
		if l.action.Remedy.Target != a.Remedy.Target || l.action.Name == a.Name {
			continue
		}
		if err := x.resolve(ctx, l.action, true); err != nil {
			return fmt.Errorf("resolve earlier actions of its target: %w", err)
		}
	}
	return nil
}

// resolve finds out whether an action in doubt was written. It stays in doubt while that
// cannot be known; the last inspection takes it for not written if the target does not show
// it. The caller has locked the target.
func (x *executor) resolve(ctx context.Context, a *Action, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	if ended, err := x.endedMeanwhile(ctx, a); err != nil {
		return fmt.Errorf("action %q: %w", a.Name, err)
	} else if ended {
		x.removeInDoubt(a.Name)
		return nil
	}
	if !isFinal(a.Phase) { // otherwise only the record is missing
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

// endedMeanwhile reports whether an action that wrote nothing was under way in this very process
// when it took over, and has ended and been reported since.
func (x *executor) endedMeanwhile(ctx context.Context, a *Action) (bool, error) {
	if !a.tried || isFinal(a.Phase) {
		return false, nil
	}
	known, err := x.journal.get(ctx, a.Name)
	if errors.Is(err, ErrNoAction) {
		return false, nil
	}
	return err == nil && isFinal(known.Phase), err
}

func (x *executor) inspect(ctx context.Context, a *Action, last bool) error {
	if a.tried {
		x.finish(a, v1alpha1.PhaseFailed, "federator stopped before it recorded the outcome; nothing was written")
		return nil
	}
	c, err := x.clients.Client(a.Remedy.Target.Member, a.Remedy.Target.Kind, a.APIVersion)
	if err != nil {
		return err
	}
	object, unchanged, err := x.readTarget(ctx, c, a)
	if err != nil {
		return err
	}
	if x.resolveOutcome(a, object, unchanged); !isFinal(a.Phase) && last {
		x.finish(a, v1alpha1.PhaseFailed, "recorded, but not written")
	}
	return nil
}

// resolveAll inspects all actions in doubt once. Those of a member that does not answer stay
// in doubt, and their records in phase Writing.
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
		return nil // resolved meanwhile
	}
	return x.resolve(ctx, l.action, x.clock().Sub(l.since) >= inFlightTimeout)
}

// clearInDoubt forgets all actions in doubt.
func (x *executor) clearInDoubt() {
	x.mu.Lock()
	clear(x.inDoubt)
	x.mu.Unlock()
}
