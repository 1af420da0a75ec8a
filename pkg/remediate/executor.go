package remediate

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"sync"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
	"federator.dev/federator/pkg/remediate/internal/values"
	"federator.dev/federator/pkg/tracing"
)

// Retries of temporary failures.
const (
	initialBackoff = 100 * time.Millisecond
	maxBackoff     = 30 * time.Second
	maxAttempts    = 6
	maxRepeats     = 1000 // ended actions of one intent
)

// errInDoubt is returned for a write that may have been done: the member did not answer.
var errInDoubt = errors.New("it is not known whether the target was written")

// errElsewhere is returned where another way to a member is to be tried later.
var errElsewhere = errors.New("the member is not reached now")

// executor carries out intents, one at a time for each target.
type executor struct {
	clients ClientFactory
	journal journal
	clock   func() time.Time
	// keepsValues is whether policies see the values of Secrets and ConfigMaps.
	keepsValues bool
	// checkWrite is called right before each request to write. Its error prevents the write
	// at this time: the lease has ended, or all actions are stopped. The request ends when the
	// lease does that it began under; zero is never.
	checkWrite func(*Intent) (until time.Time, err error)
	// checkMember is called before each request to a member. Its error prevents the request.
	// nil: no member is held.
	checkMember func(member string) error
	protection  Protection
	// owner returns who manages an intent's target, "" for nobody; its error prevents the
	// write at this time. nil: nobody manages any.
	owner func(*Intent) (string, error)
	// onResolved is called with each action that was in doubt and has ended; may be nil.
	onResolved func(*Action)

	mu      sync.Mutex
	locks   map[policy.Ref]chan struct{} // closed when the target is unlocked
	inDoubt map[string]*inDoubtAction    // by name
	managed map[string]string            // messages of records of managed targets, by name
}

// observed is a target that has just been read, and what the dry run of its write returned; nil
// where there is none.
type observed struct{ object, after map[string]any }

// execute carries out an intent and returns its Action. After an error the outcome is not
// known: of the journal, of checkWrite, of the context, or of a member that does not
// answer. The intent may be retried, which writes nothing twice.
func (x *executor) execute(ctx context.Context, i *Intent) (*Action, error) {
	a := &Action{Name: i.actionName(), Intent: *i, Phase: v1alpha1.PhaseWriting, Started: x.clock(), TraceID: tracing.TraceID(ctx)}
	a.APIVersion = i.apiVersion()
	if why := x.protection.protected(i.Remedy.Target, nil); why != "" {
		return x.finish(a, v1alpha1.PhaseProtected, why), nil
	}
	release, err := x.lockTarget(ctx, i.Remedy.Target) // also to record what is not written
	if err != nil {
		return a, err
	}
	defer release()
	if x.owner != nil {
		owner, err := x.owner(i)
		if err != nil {
			return a, err
		}
		if owner != "" {
			return x.recordManaged(ctx, x.finish(a, v1alpha1.PhaseManaged, "managed by "+owner))
		}
	}
	a.withheld = x.withholds(i.Remedy.Target.Kind)
	if why := x.refusal(i); why != "" {
		return x.recordTried(ctx, x.finish(a, v1alpha1.PhaseFailed, why))
	}
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
	}
	return x.startWrite(ctx, a, before)
}

// refusal returns why an intent is never sent, "" when it may be.
func (x *executor) refusal(i *Intent) string {
	if i.Refused != "" || x.keepsValues {
		return i.Refused
	}
	return values.Refuse(&i.Remedy)
}

// startWrite records an action that passed its dry run, and continues with the write. If it
// is recorded already, startWrite continues from the record.
func (x *executor) startWrite(ctx context.Context, a *Action, before *observed) (*Action, error) {
	for n := range maxRepeats {
		a.Name = a.repeatName(n)
		a.setAuditID()
		err := x.create(ctx, a)
		switch {
		case err == nil:
			return x.write(ctx, a, before)
		case errors.Is(err, errInvalidIntent):
			return x.finish(a, v1alpha1.PhaseFailed, err.Error()), nil
		case errors.Is(err, ErrNotNow):
			return a, err // it is not recorded
		case !errors.Is(err, errExists):
			x.addInDoubt(a) // it may be recorded
			return a, fmt.Errorf("record: %w", err)
		}
		known, err := x.journal.get(ctx, a.Name)
		if err != nil {
			return a, fmt.Errorf("read the record: %w", err)
		}
		switch known.Phase {
		case v1alpha1.PhaseWriting:
		case v1alpha1.PhaseFailed, v1alpha1.PhaseContended: // not written, or the target shows that it was
			known.Phase, known.Message, known.Manager, known.Attempts, known.Ended = v1alpha1.PhaseWriting, "", "", 0, time.Time{}
			if err := x.record(ctx, known); err != nil {
				return a, err
			}
		default:
			// The target has reverted to that version, or another process has written it since
			// it was read here.
			switch err := x.recheck(ctx, a); {
			case err != nil || a.Phase == v1alpha1.PhaseSuperseded:
				return a, err
			case isFinal(a.Phase):
				return x.recordTried(ctx, a)
			}
			continue
		}
		known.Remedy = a.Remedy                                                     // which is not recorded for Secrets
		known.OverrideGitOps, known.IgnoreOptOut = a.OverrideGitOps, a.IgnoreOptOut // which are not, either
		known.takesOwn = a.takesOwn
		known.WhileStopped, known.admit = a.WhileStopped, a.admit
		known.copyAcknowledgement(a)
		if known.Started.IsZero() {
			known.Started = a.Started
		}
		return x.write(ctx, known, nil)
	}
	return x.finish(a, v1alpha1.PhaseFailed, fmt.Sprintf("the target was corrected %d times and has reverted each time", maxRepeats)), nil
}

// recheck reads the target again. The action ends if the target has changed, or cannot be
// read.
func (x *executor) recheck(ctx context.Context, a *Action) error {
	return x.retry(ctx, a, func(c *Client) error {
		_, unchanged, err := x.readTarget(ctx, c, a)
		if err == nil && !unchanged {
			x.finish(a, v1alpha1.PhaseSuperseded, "the target has changed since it was evaluated")
		}
		return err
	})
}

// recordTried records an action that was tried and not written. All versions of its target
// share one record: what cannot be written stays so while others change the target.
func (x *executor) recordTried(ctx context.Context, a *Action) (*Action, error) {
	a.Name, a.tried, a.AuditID = a.triedName(), true, ""
	err := x.create(ctx, a)
	switch {
	case err == nil:
		return a, nil
	case errors.Is(err, errInvalidIntent):
		// It cannot be recorded: the policy's status says why.
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

// recordManaged records that a target is managed, once for each owner: its versions may change
// all the time.
func (x *executor) recordManaged(ctx context.Context, a *Action) (*Action, error) {
	name := a.triedName()
	x.mu.Lock()
	known := x.managed[name] == a.Message
	x.mu.Unlock()
	if known {
		a.Name, a.tried = name, true
		return a, nil
	}
	recorded, err := x.recordTried(ctx, a)
	if err != nil {
		return recorded, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.managed == nil || len(x.managed) >= maxManaged {
		x.managed = map[string]string{}
	}
	x.managed[name] = a.Message
	return recorded, nil
}

// maxManaged bounds the records that are known to be there.
const maxManaged = 20_000

// copyAcknowledgement copies the acknowledgement that another attempt follows.
func (a *Action) copyAcknowledgement(now *Action) {
	if now.Acknowledged != nil {
		a.Acknowledged = now.Acknowledged
	}
}

// resolveEarlier checks whether a target that has changed was written by this very action:
// an earlier attempt, here or in another process, may not know its outcome.
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

// finish ends an action in a phase.
func (x *executor) finish(a *Action, phase v1alpha1.ActionPhase, message string) *Action {
	a.Phase, a.Message, a.Ended = phase, clip.Line(message, maxMessage), x.clock()
	return a
}

// readTarget returns the target, and whether it is in the version that was evaluated.
func (x *executor) readTarget(ctx context.Context, c *Client, a *Action) (object map[string]any, unchanged bool, err error) {
	if object, err = c.get(ctx, &a.Intent); err != nil {
		return nil, false, err
	}
	uid, version := objects.Identity(object)
	return object, uid == a.UID && version == a.ResourceVersion, nil
}

// prepare reads the target, dry-runs the write and finds its inverse. The action ends if
// nothing is to be written. With an error it returns the target if that has not changed.
func (x *executor) prepare(ctx context.Context, c *Client, a *Action) (*observed, error) {
	before, unchanged, err := x.readTarget(ctx, c, a)
	if err != nil {
		return nil, err
	}
	now := &observed{object: before}
	if !unchanged {
		x.finish(a, v1alpha1.PhaseSuperseded, "the target has changed since it was evaluated")
		return now, nil
	}
	if why := x.protection.protected(a.Remedy.Target, a.optOuts(before)); why != "" {
		x.finish(a, v1alpha1.PhaseProtected, why)
		return now, nil
	}
	a.claimedBy, a.claim = claimed(before)
	req, err := a.buildRequest(before, a.Name)
	if err != nil {
		return now, err
	}
	if req == nil {
		x.finish(a, v1alpha1.PhaseNoOp, "the target is gone")
		return now, nil
	}
	traced := tracing.Start(ctx, tracing.DryRun)
	after, err := c.send(ctx, &a.Intent, req, nil)
	if traced(err); err != nil {
		return now, err
	}
	a.takesOwn = req.force
	if req.verb == "DELETE" {
		after = nil
	} else if now.after = after; objects.Same(before, after) {
		x.finish(a, v1alpha1.PhaseNoOp, "nothing would change")
		return now, nil
	}
	a.BeforeHash, a.AfterHash = objects.Digest(before, a.withheld), objects.Digest(after, a.withheld)
	inv, err := objects.Invert(before, after, a.withheld, maxPatch)
	if err != nil {
		return now, fmt.Errorf("%w: %w", errInvalidIntent, err)
	}
	a.InverseVerb, a.Inverse, a.Irreversible = inv.Verb, inv.Body, inv.Irreversible
	if fields, ok := a.fields(); ok && after != nil && !values.IsSecret(a.Remedy.Target.Kind) {
		a.ChangedHash = objects.DigestOf(after, fields, a.withheld)
	}
	return now, nil
}

// resolveOutcome ends an action whose target shows its write, or another change.
func (x *executor) resolveOutcome(a *Action, object map[string]any, unchanged bool) {
	uid, version := objects.Identity(object)
	switch {
	case a.Remedy.Action == "delete" && (uid != a.UID || objects.Terminating(object)):
		x.finish(a, v1alpha1.PhaseSucceeded, "the target is gone")
	case object != nil && objects.Annotations(object)[actionAnnotation] == a.Name:
		a.WrittenVersion = version
		x.finish(a, v1alpha1.PhaseSucceeded, "")
	case !unchanged:
		x.finish(a, v1alpha1.PhaseSuperseded, "the target changed before it was written")
	}
}

// write does the recorded write. before is the target if it has just been read.
func (x *executor) write(ctx context.Context, a *Action, before *observed) (*Action, error) {
	x.removeInDoubt(a.Name)
	resumed := before == nil // an earlier attempt may have sent a request
	maybeWritten := false    // a request may have been executed although it failed
	shown := false           // the target shows the outcome
	err := x.retry(ctx, a, func(c *Client) error {
		if before == nil {
			object, unchanged, err := x.readTarget(ctx, c, a)
			if err != nil {
				return err
			}
			if x.resolveOutcome(a, object, unchanged); isFinal(a.Phase) {
				shown = true
				if a.Remedy.Action == "delete" && a.Phase == v1alpha1.PhaseSucceeded && !resumed && !maybeWritten {
					x.finish(a, v1alpha1.PhaseSuperseded, "the target was deleted by another client")
				}
				return nil
			}
			before = &observed{object: object}
		}
		req, err := a.buildRequest(before.object, a.Name)
		if err != nil {
			return err
		}
		req.force, req.auditID = req.force || a.takesOwn, a.AuditID
		before = nil // the next attempt reads it again
		traced := tracing.Start(ctx, tracing.Write)
		object, err := c.send(ctx, &a.Intent, req, x.checkWrite)
		if traced(err); err != nil {
			maybeWritten = maybeWritten || !notExecuted(err)
			return err
		}
		_, a.WrittenVersion = objects.Identity(object)
		x.finish(a, v1alpha1.PhaseSucceeded, a.claimMessage())
		return nil
	})
	if maybeWritten && errors.Is(err, errElsewhere) {
		err = fmt.Errorf("%w: %s", errInDoubt, err.Error())
	}
	if err == nil && !shown && a.Phase != v1alpha1.PhaseSucceeded && (maybeWritten || resumed && a.Phase == v1alpha1.PhaseSuperseded) {
		err = fmt.Errorf("%w: %s", errInDoubt, a.Message)
		a.Phase, a.Manager, a.Ended = v1alpha1.PhaseWriting, "", time.Time{}
		a.Message = clip.Line(err.Error(), maxMessage)
	}
	if err == nil {
		err = x.record(ctx, a)
	} else if errors.Is(err, errInDoubt) {
		err = errors.Join(err, x.record(ctx, a))
	}
	if a.Phase == v1alpha1.PhaseSuperseded && errors.Is(err, errEnded) {
		// Another process has continued it, and knows its outcome.
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

// checkError is an error of checkWrite, which is not one of a request.
type checkError struct{ error }

func (e *checkError) Unwrap() error { return e.error }

// retry calls f with the target's client until it succeeds, or is refused for good, which
// ends the action. Its error is that of the context, checkMember or checkWrite.
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
		var check *checkError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &check):
			return check.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		a.Attempts++
		class := classify(err, &a.Intent)
		why := describeError(err, a.Remedy.Target)
		switch {
		case class.phase == v1alpha1.PhaseSuperseded && try < maxAttempts:
			// The target shows whether it has changed, and by whose write.
		case class.phase != "":
			a.Manager = class.manager
			x.finish(a, class.phase, why)
			return nil
		case try >= maxAttempts && errors.Is(err, ErrNotNow):
			return fmt.Errorf("%w: %w", errElsewhere, err) // as if it had not been tried
		case try >= maxAttempts:
			x.finish(a, v1alpha1.PhaseFailed, fmt.Sprintf("tried %d times: %s", try, why))
			return nil
		}
		jittered := jitter(wait, a.Name, try)
		if err := sleep.For(ctx, max(class.retryAfter, jittered)); err != nil {
			return err
		}
		wait = min(2*wait, maxBackoff)
	}
}

// jitter spreads a wait by a fifth in both directions. It follows from the action and the
// attempt, so that the same history has the same times.
func jitter(wait time.Duration, action string, try int) time.Duration {
	h := fnv.New32a()
	fmt.Fprint(h, action, try)
	return time.Duration(float64(wait) * (0.8 + 0.4*float64(h.Sum32())/math.MaxUint32))
}

// withholds reports whether values of a kind are recorded nowhere. Those of Secrets never
// are.
func (x *executor) withholds(kind policy.Kind) bool {
	return values.IsSecret(kind) || values.IsSensitive(kind) && !x.keepsValues
}
