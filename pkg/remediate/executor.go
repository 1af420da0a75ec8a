package remediate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
)

// Retries of what can pass.
const (
	initialBackoff = 100 * time.Millisecond
	maxBackoff     = 30 * time.Second
	maxAttempts    = 6
	maxRepeats     = 1000 // actions of one intent, each of which has ended
)

// errInDoubt is of a write that may have been done: nobody has answered.
var errInDoubt = errors.New("it is not known whether it was written")

// executor carries intents out, one at a time for each target.
type executor struct {
	clients Clients
	journal journal
	clock   func() time.Time
	// checkWrite is asked right before each write. Its error keeps the write from being
	// done now: the lease has ended, or somebody has stopped all actions.
	checkWrite func(*Intent) error
	// checkMember is asked before a member is: its error keeps everything from being tried
	// there. nil: no member is held.
	checkMember func(member string) error
	// onResolved is told what has become of what was left; may be nil.
	onResolved func(*Action)

	mu      sync.Mutex
	locks   map[policy.Ref]chan struct{} // targets at work; closed when let go
	inDoubt map[string]*inDoubtAction    // by name: what is recorded and perhaps written
}

// observed is a target as it was a moment ago.
type observed struct{ object map[string]any }

// execute carries an intent out and returns what has become of it. Its error is one for
// which nothing is known: of the journal, of the gate, of the context, or of a member
// that does not answer. The intent may be tried again, which writes nothing twice.
func (x *executor) execute(ctx context.Context, i *Intent) (*Action, error) {
	a := &Action{Name: i.actionName(), Intent: *i, Phase: v1alpha1.PhaseWriting, Started: x.clock()}
	a.APIVersion = i.apiVersion()
	if why := Protected(i.Remedy.Target, nil); why != "" {
		return x.finish(a, v1alpha1.PhaseProtected, why), nil
	}
	release, err := x.lockTarget(ctx, i.Remedy.Target)
	if err != nil {
		return a, err
	}
	defer release()
	if err := x.resolveOthers(ctx, a); err != nil {
		return a, err
	}
	var before *observed
	if err := x.retry(ctx, a, func(c *Client) (err error) {
		before, err = x.prepare(ctx, c, a)
		return err
	}); err != nil {
		return a, err
	}
	switch {
	case a.Phase == v1alpha1.PhaseSuperseded:
		return x.resolveEarlier(ctx, a, before)
	case a.Phase == v1alpha1.PhaseNoOp || a.Phase == v1alpha1.PhaseProtected:
		return a, nil
	case isFinal(a.Phase):
		return x.recordTried(ctx, a)
	case i.DryRun:
		return x.recordTried(ctx, x.finish(a, v1alpha1.PhaseDryRunPassed, ""))
	}
	return x.startWrite(ctx, a, before)
}

// startWrite records an action that is ready, and goes on with the write. If it is recorded
// already it goes on from there.
func (x *executor) startWrite(ctx context.Context, a *Action, before *observed) (*Action, error) {
	for n := range maxRepeats {
		a.Name = a.repeatName(n)
		err := x.journal.create(ctx, a)
		switch {
		case err == nil:
			return x.write(ctx, a, before)
		case errors.Is(err, errInvalidIntent):
			return x.finish(a, v1alpha1.PhaseFailed, err.Error()), nil
		case !errors.Is(err, errExists):
			x.addInDoubt(a) // it may have been recorded
			return a, fmt.Errorf("record: %w", err)
		}
		known, err := x.journal.get(ctx, a.Name)
		if err != nil {
			return a, fmt.Errorf("read the record: %w", err)
		}
		switch known.Phase {
		case v1alpha1.PhaseWriting:
		case v1alpha1.PhaseFailed, v1alpha1.PhaseContended: // nothing was written, or it shows
			known.Phase, known.Message, known.Manager, known.Attempts, known.Ended = v1alpha1.PhaseWriting, "", "", 0, time.Time{}
			if err := x.record(ctx, known); err != nil {
				return a, err
			}
		default:
			// The target is again as it was then, or another process has written it since it
			// was read here.
			switch err := x.recheck(ctx, a); {
			case err != nil || a.Phase == v1alpha1.PhaseSuperseded:
				return a, err
			case isFinal(a.Phase):
				return x.recordTried(ctx, a)
			}
			continue
		}
		known.Remedy = a.Remedy // a Secret's is not recorded
		known.copyAcknowledgement(a)
		if known.Started.IsZero() {
			known.Started = a.Started
		}
		return x.write(ctx, known, nil)
	}
	return x.finish(a, v1alpha1.PhaseFailed, fmt.Sprintf("the target was corrected %d times and is again as it was", maxRepeats)), nil
}

// recheck reads the target again. The action has ended if it has moved, or cannot be
// read.
func (x *executor) recheck(ctx context.Context, a *Action) error {
	return x.retry(ctx, a, func(c *Client) error {
		_, unmoved, err := x.readTarget(ctx, c, a)
		if err == nil && !unmoved {
			x.finish(a, v1alpha1.PhaseSuperseded, "the target has changed since it was judged")
		}
		return err
	})
}

// recordTried records an action that has been tried and not written. There is one record of
// the correction for all versions of its target: what cannot be written stays so while
// others change the target.
func (x *executor) recordTried(ctx context.Context, a *Action) (*Action, error) {
	a.Name, a.tried = a.triedName(), true
	err := x.journal.create(ctx, a)
	switch {
	case err == nil:
		return a, nil
	case errors.Is(err, errInvalidIntent):
		// Its status says so; the record that it cannot have would be one more place.
		return x.finish(a, v1alpha1.PhaseFailed, fmt.Sprintf("%s (%v)", a.Message, err)), nil
	case !errors.Is(err, errExists):
		return a, fmt.Errorf("record: %w", err)
	}
	known, err := x.journal.get(ctx, a.Name)
	if err != nil {
		return a, fmt.Errorf("read the record: %w", err)
	}
	if known.Phase == a.Phase && known.Message == a.Message {
		return a, nil
	}
	known.Phase, known.Message, known.Manager, known.Attempts, known.Ended = a.Phase, a.Message, a.Manager, a.Attempts, a.Ended
	known.copyAcknowledgement(a)
	return known, x.record(ctx, known)
}

// copyAcknowledgement takes over the acknowledgement that another try follows.
func (a *Action) copyAcknowledgement(now *Action) {
	if now.Acknowledged != nil {
		a.Acknowledged = now.Acknowledged
	}
}

// resolveEarlier looks whether a target that has moved was written by this very action, which
// another process, or this one, does not know.
func (x *executor) resolveEarlier(ctx context.Context, a *Action, now *observed) (*Action, error) {
	if now == nil {
		return a, nil
	}
	known, err := x.journal.get(ctx, a.Name)
	switch {
	case errors.Is(err, ErrNoAction):
		return a, nil
	case err != nil:
		return a, fmt.Errorf("read the record: %w", err)
	case known.Phase != v1alpha1.PhaseWriting && known.Phase != v1alpha1.PhaseFailed && known.Phase != v1alpha1.PhaseContended:
		return a, nil
	}
	was := known.Phase
	if x.resolveOutcome(known, now.object, false); known.Phase == v1alpha1.PhaseSuperseded && was != v1alpha1.PhaseWriting {
		return a, nil
	}
	return known, x.record(ctx, known)
}

// finish gives an action its last phase.
func (x *executor) finish(a *Action, phase v1alpha1.ActionPhase, message string) *Action {
	a.Phase, a.Message, a.Ended = phase, truncateLine(message, maxMessage), x.clock()
	return a
}

// readTarget returns the target as it is, and whether it is as it was judged.
func (x *executor) readTarget(ctx context.Context, c *Client, a *Action) (object map[string]any, unmoved bool, err error) {
	if object, err = c.get(ctx, &a.Intent); err != nil {
		return nil, false, err
	}
	uid, version := objects.Identity(object)
	return object, uid == a.UID && version == a.ResourceVersion, nil
}

// prepare looks at the target, tries the write and finds its inverse. The action has
// ended if nothing is to be written. Beside an error it returns the target if that has
// not moved.
func (x *executor) prepare(ctx context.Context, c *Client, a *Action) (*observed, error) {
	before, unmoved, err := x.readTarget(ctx, c, a)
	if err != nil {
		return nil, err
	}
	now := &observed{before}
	if !unmoved {
		x.finish(a, v1alpha1.PhaseSuperseded, "the target has changed since it was judged")
		return now, nil
	}
	if why := Protected(a.Remedy.Target, objects.Annotations(before)); why != "" {
		x.finish(a, v1alpha1.PhaseProtected, why)
		return now, nil
	}
	w, err := a.buildRequest(before, a.Name)
	if err != nil {
		return now, err
	}
	if w == nil {
		x.finish(a, v1alpha1.PhaseNoOp, "the target is gone")
		return now, nil
	}
	after, err := c.send(ctx, &a.Intent, w, true)
	if err != nil {
		return now, err
	}
	if w.verb == "DELETE" {
		after = nil
	} else if objects.Same(before, after) {
		x.finish(a, v1alpha1.PhaseNoOp, "nothing would change")
		return now, nil
	}
	secret := isSecret(a.Remedy.Target.Kind)
	a.BeforeHash, a.AfterHash = objects.Digest(before, secret), objects.Digest(after, secret)
	inv, err := objects.Invert(before, after, secret, maxPatch)
	if err != nil {
		return now, fmt.Errorf("%w: %w", errInvalidIntent, err)
	}
	a.InverseVerb, a.Inverse, a.Irreversible = inv.Verb, inv.Body, inv.Irreversible
	return now, nil
}

// resolveOutcome ends an action whose target shows its write, or has moved otherwise.
func (x *executor) resolveOutcome(a *Action, object map[string]any, unmoved bool) {
	uid, version := objects.Identity(object)
	switch {
	case a.Remedy.Action == "delete" && (uid != a.UID || objects.Terminating(object)):
		x.finish(a, v1alpha1.PhaseSucceeded, "the target is gone")
	case object != nil && objects.Annotations(object)[actionAnnotation] == a.Name:
		a.WrittenVersion = version
		x.finish(a, v1alpha1.PhaseSucceeded, "")
	case !unmoved:
		x.finish(a, v1alpha1.PhaseSuperseded, "the target has changed before it was written")
	}
}

// write does the write that is recorded. before is the target if it was just seen.
func (x *executor) write(ctx context.Context, a *Action, before *observed) (*Action, error) {
	x.removeInDoubt(a.Name)
	resumed := before == nil // somebody may have sent a request before
	unsure := false          // a request may have been done though it failed
	shown := false           // the target says what came of it
	err := x.retry(ctx, a, func(c *Client) error {
		if before == nil {
			object, unmoved, err := x.readTarget(ctx, c, a)
			if err != nil {
				return err
			}
			if x.resolveOutcome(a, object, unmoved); isFinal(a.Phase) {
				shown = true
				if a.Remedy.Action == "delete" && a.Phase == v1alpha1.PhaseSucceeded && !resumed && !unsure {
					x.finish(a, v1alpha1.PhaseSuperseded, "somebody else has deleted the target")
				}
				return nil
			}
			before = &observed{object}
		}
		w, err := a.buildRequest(before.object, a.Name)
		if err != nil {
			return err
		}
		before = nil // look again, next time
		if err := x.checkWrite(&a.Intent); err != nil {
			return &gateError{err}
		}
		object, err := c.send(ctx, &a.Intent, w, false)
		if err != nil {
			unsure = unsure || !notExecuted(err)
			return err
		}
		_, a.WrittenVersion = objects.Identity(object)
		x.finish(a, v1alpha1.PhaseSucceeded, "")
		return nil
	})
	if err == nil && !shown && a.Phase != v1alpha1.PhaseSucceeded && (unsure || resumed && a.Phase == v1alpha1.PhaseSuperseded) {
		err = fmt.Errorf("%w: %s", errInDoubt, a.Message)
		a.Phase, a.Manager, a.Ended = v1alpha1.PhaseWriting, "", time.Time{}
		a.Message = truncateLine(err.Error(), maxMessage)
	}
	if err == nil {
		err = x.record(ctx, a)
	} else if errors.Is(err, errInDoubt) {
		err = errors.Join(err, x.record(ctx, a))
	}
	if a.Phase == v1alpha1.PhaseSuperseded && errors.Is(err, errEnded) {
		// Another process has taken it up, and knows what has come of it.
		known, unread := x.journal.get(ctx, a.Name)
		if unread == nil {
			return known, nil
		}
		err = errors.Join(err, unread)
	}
	if err != nil {
		x.addInDoubt(a)
	}
	return a, err
}

// record writes down where an action stands; what a member has been told must be
// known even where the process is about to end. What is taken back is marked first.
func (x *executor) record(ctx context.Context, a *Action) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if a.Phase == v1alpha1.PhaseSucceeded && a.RollbackOf != "" {
		of, err := x.journal.get(ctx, a.RollbackOf)
		if err == nil && of.Phase == v1alpha1.PhaseSucceeded {
			err = x.journal.update(ctx, x.finish(of, v1alpha1.PhaseRolledBack, "by "+a.Name))
		}
		if err != nil && !errors.Is(err, ErrNoAction) {
			return fmt.Errorf("record what is taken back: %w", err)
		}
	}
	if err := x.journal.update(ctx, a); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

type gateError struct{ error }

func (e *gateError) Unwrap() error { return e.error }

// retry does something with the target's client until it succeeds, or is refused for
// good, which ends the action. Its error is the context's or the gate's.
func (x *executor) retry(ctx context.Context, a *Action, f func(*Client) error) error {
	for try, wait := 1, initialBackoff; ; try++ {
		if x.checkMember != nil {
			if err := x.checkMember(a.Remedy.Target.Member); err != nil {
				return err
			}
		}
		c, err := x.clients.Client(a.Remedy.Target.Member, a.Remedy.Target.Kind, a.APIVersion)
		if err == nil {
			err = f(c)
		}
		var gate *gateError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &gate):
			return gate.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		a.Attempts++
		r := classify(err, &a.Intent)
		why := describeError(err, a.Remedy.Target)
		switch {
		case r.phase == v1alpha1.PhaseSuperseded && try < maxAttempts:
			// The target says whether it has moved, and by whom.
		case r.phase != "":
			a.Manager = r.manager
			x.finish(a, r.phase, why)
			return nil
		case try >= maxAttempts:
			x.finish(a, v1alpha1.PhaseFailed, fmt.Sprintf("tried %d times: %s", try, why))
			return nil
		}
		jittered := time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // Jitter.
		if err := sleep(ctx, max(r.retryAfter, jittered)); err != nil {
			return err
		}
		wait = min(2*wait, maxBackoff)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
