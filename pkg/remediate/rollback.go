package remediate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
)

// Errors of rollbacks.
var (
	// ErrIrreversible is returned for an action that cannot be rolled back.
	ErrIrreversible = errors.New("the action cannot be rolled back")
	// ErrRolledBack is returned for an action that is rolled back already.
	ErrRolledBack = fmt.Errorf("%w: it is %s", ErrIrreversible, v1alpha1.PhaseRolledBack)
	// ErrMemberGone is returned for an action of a member that is not there any more: another
	// one has its name, which nothing was written in.
	ErrMemberGone = fmt.Errorf("%w: the member is another one of the same name", ErrIrreversible)
	// ErrChanged is returned for an action whose target has changed since.
	ErrChanged = errors.New("the target has changed since the action")
)

// RollbackRequest is how a person wants an action to be rolled back.
type RollbackRequest struct {
	Force        bool   // also if the target has changed since
	WhileStopped bool   // also while writes are stopped
	Reason       string // recorded
	// Admit is called right before each request to write, and must not block. Its error, which
	// is ErrNotNow, prevents the request. nil: nothing else does.
	Admit func() error
}

// maxReads is how often a target is read again that others change in the meantime.
const maxReads = 3

// RollBack rolls back an action that was written, for a reason that is recorded. It is a
// correction like any other, guarded by the lease, Stop, the bounds of the fleet and what is
// protected; but it is a request of a person, so halts, suspension, windows and limits of the
// policy do not prevent it, and corrections let it begin first. It counts towards the limits as a
// target affected.
//
// It returns the Action that does it: Succeeded when done, else its Phase and Message say
// what prevented it. Errors are ErrNotNow, ErrNoAction, ErrIrreversible, ErrRolledBack,
// ErrMemberGone, ErrChanged where the target has changed and Force is not set, or an error of the journal or
// the member, after which the outcome is not known.
func (d *Dispatcher) RollBack(ctx context.Context, name string, r RollbackRequest) (*Action, error) {
	of, err := d.journal.get(ctx, name)
	if err != nil {
		return nil, err
	}
	if of.Phase == v1alpha1.PhaseRolledBack {
		return nil, fmt.Errorf("action %q: %w", name, ErrRolledBack)
	}
	if err := d.acquireTarget(ctx, of, r.WhileStopped); err != nil {
		return nil, fmt.Errorf("action %q: %w", name, err)
	}
	defer d.releaseTarget(of)
	for read := 1; ; read++ {
		now, err := readTargetState(ctx, d.opts.Clients, of, d.exec.withholds(of.Remedy.Target.Kind))
		if err != nil {
			return nil, fmt.Errorf("action %q: %w", name, err)
		}
		if now.Restored, err = d.isRestored(ctx, of, &now); err != nil {
			return nil, fmt.Errorf("action %q: %w", name, err)
		}
		i, err := inverseIntent(of, now, r.Force)
		if (err != nil || r.Force) && d.exec.rollsBack(name) {
			// What looks like a change by somebody else may be an earlier attempt.
			return nil, fmt.Errorf("action %q: %w: %s", name, ErrNotNow, resolving)
		}
		if err != nil {
			return nil, err
		}
		i.Reason, i.WhileStopped, i.admit = r.Reason, r.WhileStopped, r.Admit
		if i.MemberUID == "" && d.opts.MemberUID != nil {
			i.MemberUID = d.opts.MemberUID(i.Remedy.Target.Member) // the gate asks whether it still is
		}
		a, err := d.executeSafely(ctx, i)
		if err == nil && a.Phase == v1alpha1.PhaseSuperseded && read < maxReads {
			continue // the target's new state says whether that matters
		}
		d.mu.Lock()
		d.recordTriedLocked(i, a, err, d.opts.Clock())
		d.mu.Unlock()
		if err != nil {
			return a, fmt.Errorf("action %q: %w", name, err)
		}
		d.corrected(a)
		return a, nil
	}
}

// slotPoll is how often it is looked at whether a rollback may begin that waits for others to end.
const slotPoll = 100 * time.Millisecond

// acquireTarget keeps a target from being corrected until releaseTarget. It waits while as many
// writes are under way as may be, and no correction begins meanwhile that would be one of them.
func (d *Dispatcher) acquireTarget(ctx context.Context, a *Action, whileStopped bool) error {
	done := func() {}
	defer func() { done() }()
	for {
		if err := d.checkAcquire(a); err != nil {
			return err
		}
		next, err := d.tryAcquire(a, whileStopped)
		if err != nil || next == nil {
			return err
		}
		done() // now that it waits again
		done = next
		if err = sleep.For(ctx, slotPoll); err != nil {
			return fmt.Errorf("%w: as many writes are under way as may be: %w", ErrNotNow, err)
		}
	}
}

// tryAcquire acquires a target. Where that is to be tried again, it returns what ends the wait.
func (d *Dispatcher) tryAcquire(a *Action, whileStopped bool) (wait func(), err error) {
	member, now := a.Remedy.Target.Member, d.opts.Clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	stop := cmp.Or(d.stops.policy(a.Binding, a.Source), d.stops.member(member))
	switch {
	case stop != "" && !whileStopped:
		return nil, fmt.Errorf("%w: %s", ErrNotNow, stop)
	case !d.recovered:
		return nil, fmt.Errorf("%w: %s", ErrNotNow, resolving)
	case d.busy[a.Remedy.Target]:
		return nil, fmt.Errorf("%w: the target is being written", ErrNotNow)
	case d.inflight[member] >= d.opts.MemberConcurrency:
		return d.waitLocked(member), nil
	case d.inflight[member] == 0 && !d.bounds.Admits(len(d.inflight)), d.bounds.NextStart(now).After(now):
		return d.waitLocked(anyMember), nil
	}
	d.busy[a.Remedy.Target] = true
	d.inflight[member]++
	d.bounds.Start(now)
	return nil, nil
}

// anyMember stands for all members in Dispatcher.waits.
const anyMember = ""

// waitLocked has no correction of a member begin until what it returns is called: one that hangs
// delays nobody else's.
func (d *Dispatcher) waitLocked(member string) func() {
	d.waits[member]++
	return func() {
		d.mu.Lock()
		if d.waits[member]--; d.waits[member] == 0 {
			delete(d.waits, member)
		}
		d.mu.Unlock()
		d.trigger()
	}
}

// checkAcquire is what acquireTarget asks without the lock.
func (d *Dispatcher) checkAcquire(a *Action) error {
	if err := d.checkMember(a.Remedy.Target.Member); err != nil {
		return err
	}
	if err := d.checkLeader(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotNow, err)
	}
	if err := d.checkSameMember(&a.Intent); err != nil && !errors.Is(err, ErrNotNow) {
		return err // one that is not known has no client, either
	}
	return nil
}

// endWriteLocked counts a write, or what was to be one, as no longer under way.
func (d *Dispatcher) endWriteLocked(i *Intent) {
	target := i.Remedy.Target
	delete(d.busy, target)
	d.ledger.EndWrite(i.Binding, target, d.opts.Clock())
	if d.inflight[target.Member]--; d.inflight[target.Member] == 0 {
		delete(d.inflight, target.Member)
	}
}

// checkSameMember returns why a rollback must not be written in the member that has the name
// now: ErrMemberGone, or ErrNotNow while it is not known which that is.
func (d *Dispatcher) checkSameMember(i *Intent) error {
	if i.MemberUID == "" || d.opts.MemberUID == nil {
		return nil // an earlier version has recorded it
	}
	switch now := d.opts.MemberUID(i.Remedy.Target.Member); now {
	case i.MemberUID:
		return nil
	case "":
		return fmt.Errorf("%w: member %s is not known", ErrNotNow, i.Remedy.Target.Member)
	}
	return ErrMemberGone
}

func (d *Dispatcher) releaseTarget(a *Action) {
	d.mu.Lock()
	d.endWriteLocked(&a.Intent)
	d.mu.Unlock()
	d.trigger()
}

// targetState is the present state of an action's target on its member.
type targetState struct {
	APIVersion, UID, ResourceVersion string // "" where there is none
	Hash                             string // of its content, like Action.BeforeHash and AfterHash; "" where there is none
	ChangedHash                      string // like that of the action
	Action                           string // that has written it last; "" if none has
	Restored                         bool   // it was created again by the rollback of a deletion of the action's object
	Other                            string // manager other than the action's that has set fields; "" if there is none
}

// readTargetState reads an action's target from its member.
func readTargetState(ctx context.Context, clients ClientFactory, a *Action, withheld bool) (targetState, error) {
	c, err := clients.Client(a.Remedy.Target.Member, a.Remedy.Target.Kind, a.APIVersion)
	if err != nil {
		return targetState{}, err
	}
	object, err := c.get(ctx, &a.Intent)
	if err != nil {
		return targetState{}, fmt.Errorf("%s: %s", a.Remedy.Target, describeError(err, a.Remedy.Target)) //nolint:errorlint // Bounded.
	}
	t := targetState{Hash: objects.Digest(object, withheld)}
	if fields, ok := a.fields(); ok && object != nil {
		t.ChangedHash = objects.DigestOf(object, fields, withheld)
		t.Other = objects.OtherManager(object, a.fieldManager())
	}
	t.APIVersion, _ = object["apiVersion"].(string)
	t.UID, t.ResourceVersion = objects.Identity(object)
	t.Action = objects.Annotations(object)[actionAnnotation]
	return t, nil
}

// isRestored reports whether the object that has the name of an action's target is that of a
// rollback: what was deleted later was created again, with another UID.
func (d *Dispatcher) isRestored(ctx context.Context, of *Action, now *targetState) (bool, error) {
	if of.UID == "" || now.UID == "" || now.UID == of.UID || now.Action == "" {
		return false, nil
	}
	name := now.Action
	for _, is := range []func(*Action) bool{
		func(a *Action) bool { return a.RollbackOf != "" && a.Remedy.Action == "apply" && a.UID == "" },
		func(a *Action) bool { return a.Remedy.Action == "delete" && a.UID == of.UID },
	} {
		a, err := d.journal.get(ctx, name)
		if errors.Is(err, ErrNoAction) {
			return false, nil
		}
		if err != nil || a.Remedy.Target != of.Remedy.Target || a.MemberUID != of.MemberUID || !is(a) {
			return false, err
		}
		name = a.RollbackOf
	}
	return true, nil
}

// isLeftBy reports whether an action's target is as the action left it: the fields that it
// set, since servers and controllers set others. Where these are not recorded, all of it.
func (t *targetState) isLeftBy(a *Action) bool {
	if a.ChangedHash != "" {
		return t.ChangedHash == a.ChangedHash
	}
	return t.Hash == a.AfterHash
}

// inverseIntent returns the intent that rolls an action back: it is executed like any
// other, with the target's present version as its precondition. Where the target is not as
// the action left it, it is ErrChanged unless forced, which also takes over the fields of
// other managers.
func inverseIntent(a *Action, now targetState, force bool) (*Intent, error) {
	switch {
	case a.Phase != v1alpha1.PhaseSucceeded:
		return nil, fmt.Errorf("action %q: %w: it is %s", a.Name, ErrIrreversible, a.Phase)
	case a.InverseVerb == "":
		return nil, fmt.Errorf("action %q: %w: %s", a.Name, ErrIrreversible, a.Irreversible)
	case now.UID == "" && a.InverseVerb != "apply":
		return nil, fmt.Errorf("action %q: %w: the target is gone", a.Name, ErrIrreversible)
	case !force && !now.isLeftBy(a):
		return nil, fmt.Errorf("action %q: %w", a.Name, ErrChanged)
	case !force && a.UID != "" && a.Remedy.Action != "delete" && now.UID != a.UID && !now.Restored:
		return nil, fmt.Errorf("action %q: %w: it is another object of the same name", a.Name, ErrChanged)
	case !force && a.InverseVerb == "delete" && now.Other != "":
		return nil, fmt.Errorf("action %q: %w: %s has set fields of the object, which would be deleted", a.Name, ErrChanged, clip.Line(now.Other, maxManager))
	}
	i := a.Intent
	i.Message, i.RollbackOf, i.Force = "rolls back "+a.Name, a.Name, force
	i.APIVersion, i.UID, i.ResourceVersion = a.APIVersion, now.UID, now.ResourceVersion
	i.Remedy = policy.Remedy{Action: a.InverseVerb, Target: a.Remedy.Target}
	switch body := a.Inverse; a.InverseVerb {
	case "apply":
		i.Remedy.Object = body
	case "patch":
		i.Remedy.Patch = body
	}
	return &i, nil
}

// CorrectionState is whether a policy may correct now what a rollback restores.
type CorrectionState struct {
	Restored   bool   // what lasts is known: else nothing else is
	Known      bool   // there is such a policy here, with intents or without
	Generation string // that it rolls out
	Idle       bool   // it has no intents, or none that are written
	Suspended  bool
	Halted     bool
	Stopped    string // why; "" if it is not
}

// CorrectionState returns whether a policy may correct now.
func (d *Dispatcher) CorrectionState(binding string) CorrectionState {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[binding]
	if s == nil || s.removed {
		return CorrectionState{Restored: d.recovered, Stopped: d.stops.policy(binding, "")}
	}
	return CorrectionState{
		Restored: d.recovered, Known: true, Generation: s.spec.Generation, Idle: len(s.intents) == 0 || s.spec.DryRun, Suspended: s.spec.Suspend, Halted: len(s.halts) > 0,
		Stopped: d.stops.policy(binding, s.spec.Source),
	}
}
